"""Sealed lines of JSON between the hosts of an allocation.

Each line carries a code of its text, its number and its direction under a key of this connection
alone, which the secret of the allocation and a random number of either side make. So a stranger on
the network can neither join nor repeat a line. Nothing is encrypted, and nothing is secret.
"""

import contextlib
import hmac
import json
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

Message = dict[str, Any]

HANDSHAKE_SECONDS = 10.0
LINE_LIMIT_BYTES = 1_000_000
# A host that is off, or behind a cut cable, closes no connection: the kernel asks it.
PROBE_EVERY_SECONDS, PROBES_UNANSWERED = 5, 3
FIRST, FOLLOWER = b"first", b"follower"


class Channel:
    """One connection; `is_first` on the first host. Raises OSError or ValueError for a stranger.

    `receive` waits for a message until `listen` starts a thread, which then fills an inbox and
    calls its `on_end` at the end of the connection.
    """

    def __init__(self, connection: socket.socket, key: bytes, *, is_first: bool) -> None:
        connection.settimeout(HANDSHAKE_SECONDS)
        self._connection = connection
        self._reader = connection.makefile("rb")
        self._sending = threading.Lock()
        self._inbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._own, self._other = (FIRST, FOLLOWER) if is_first else (FOLLOWER, FIRST)
        self._sent = self._received = 0
        own = secrets.token_hex().encode()
        connection.sendall(own + b"\n")
        other = self._reader.readline(len(own) + 1).strip()
        both = own + other if is_first else other + own
        self._key = hmac.digest(key, both, "sha256")
        self.is_lost = False

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; one that cannot be sent shows as the end of the connection."""
        text = json.dumps(message).encode()
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(self._seal(self._own, self._sent, text) + text + b"\n")
            self._sent += 1

    def receive(self) -> Message:
        """The next message. Raises OSError at the end, ValueError for one of a stranger."""
        line = self._reader.readline(LINE_LIMIT_BYTES)
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection was closed")
        text = line[:-1]
        seal = self._seal(self._other, self._received, text[64:])
        if not hmac.compare_digest(seal, text[:64]):
            raise ValueError("a message without the allocation's key")
        self._received += 1
        try:
            message = json.loads(text[64:])
        except RecursionError as error:
            raise ValueError("a message that is nested too deeply") from error
        if not isinstance(message, dict):
            raise ValueError("a message that is no JSON object")
        return message

    def listen(self, on_end: Callable[[], None] = lambda: None) -> None:
        """Receive in a thread from here on, for as long as it takes."""
        self._connection.settimeout(None)
        _keep_alive(self._connection)
        threading.Thread(target=self._listen, args=(on_end,), name="host", daemon=True).start()

    def next(self, *, wait_seconds: float) -> Message | None:
        """The next message of the inbox, None if none comes in time or after the last one."""
        try:
            message = (
                self._inbox.get(timeout=wait_seconds) if wait_seconds else self._inbox.get_nowait()
            )
        except queue.Empty:
            return None
        self.is_lost = self.is_lost or message is None
        return message

    def close(self) -> None:
        """End the connection; harmless if it has ended."""
        end_connection(self._connection)
        self._reader.close()

    def _seal(self, sender: bytes, number: int, text: bytes) -> bytes:
        return (
            hmac.new(self._key, b"%s %d %s" % (sender, number, text), "sha256").hexdigest().encode()
        )

    def _listen(self, on_end: Callable[[], None]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                self._inbox.put(self.receive())
        on_end()
        self.close()
        self._inbox.put(None)


def end_connection(connection: socket.socket) -> None:
    """End a connection, also where a reader still holds it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_EVERY_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES_UNANSWERED)
    unanswered = 1000 * PROBE_EVERY_SECONDS * (PROBES_UNANSWERED + 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unanswered)


def read_endpoint(text: str) -> tuple[str, int]:
    """Address and port of HOST:PORT. Raises ValueError with the expectation."""
    address, _, port = text.rpartition(":")
    if not address or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text}: expected HOST:PORT, as in node-1:29400")
    return address.strip("[]"), int(port)
