"""The other hosts of an allocation, as the first one sees and leads them.

They join by a connection each, are told every training and its end, and report their failures. One
that is gone may come back under its name. Until then the worker takes no work. A connection
carries sealed lines of JSON: each line has a code of its text, its number and its direction under a
key of this connection alone, which the secret of the allocation and a random number of either side
make. So a stranger on the network can neither join nor repeat a line. Nothing is encrypted, and
nothing is secret.
"""

import contextlib
import hmac
import itertools
import json
import logging
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from finishline.rules.verification.messages import Failure, Node
from worker.failures import failure, known_code
from worker.group import Meeting

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


log = logging.getLogger(__name__)

JOIN_SECONDS = 600.0
STOP_SECONDS = 10.0
# A process that dies takes the others with it: the host where it began has so long to say why.
EXPLAIN_SECONDS = 5.0
POLL_SECONDS = 0.05
Program = Literal["training", "all_reduce"]


class HostsError(Exception):
    """The hosts of an allocation did not come together; the sentence says why."""


@dataclass(frozen=True)
class Arrival:
    """A host that joins: hardware and versions must be alike on all, names must differ."""

    node: Node
    hardware_class: str
    processes: int
    software: dict[str, str]

    def fault_beside(self, first: "Arrival") -> str | None:
        """Sentence on the first difference to the first host, None if there is none."""
        told = (
            ("hardware_class", self.hardware_class, first.hardware_class),
            ("FINISHLINE_PROCESSES", self.processes, first.processes),
            *((name, self.software.get(name), first.software.get(name)) for name in ALIKE),
        )
        for field, found, expected in told:
            if found != expected:
                return f"{field}: {found}; expected {expected} as on {first.node.name}"
        return None


ALIKE = ("torch", "numpy")


@dataclass
class _Ended:
    """The end of a host's part of a training; `reason` is None where it trained to its end."""

    at: float
    reason: Failure | None


class Hosts:
    """Listens at a port for `count` - 1 others; `on_change` is told whether all are here.

    `address` is the name of this host that the others reach it by.
    """

    def __init__(
        self,
        count: int,
        *,
        address: str,
        port: int,
        key: bytes,
        own: Arrival,
        on_change: Callable[[bool], None],
    ) -> None:
        self._count = count
        self._address = address
        self._key = key
        self._own = own
        self._on_change = on_change
        self._changed = threading.Condition()
        self._channels: dict[str, Channel] = {}  # by name; those that are connected
        self._names: frozenset[str] | None = None  # of the others, once all were here
        self._training = 0
        self._numbers = itertools.count(1)
        self._taking_part: dict[str, Channel] = {}
        self._ended: dict[str, _Ended] = {}
        self._nodes: dict[str, Node] = {}
        self.log_tail = ""
        self._listener = _listen(port)
        threading.Thread(target=self._accept, name="hosts", daemon=True).start()

    @property
    def nodes(self) -> list[Node]:
        """All hosts in the order of their ranks: this one, then the others by name."""
        return [self._own.node, *(self._nodes[name] for name in sorted(self._nodes))]

    def wait(self, *, seconds: float = JOIN_SECONDS) -> None:
        """Wait until all are here. Raises HostsError with those that are."""
        with self._changed:
            if not self._changed.wait_for(self._is_complete, timeout=seconds):
                here = ", ".join([self._own.node.name, *sorted(self._channels)])
                raise HostsError(
                    f"{1 + len(self._channels)} of {self._count} hosts came within {seconds:g} s "
                    f"({here}): start the others with --follow and the same --rdzv-endpoint"
                )
            self._names = frozenset(self._channels)

    def begin(self, program: Program, orders: Mapping[str, Any]) -> Meeting:
        """Start a program on the other hosts; the launcher of this one joins them there."""
        self._training = next(self._numbers)
        with self._changed:
            self._taking_part = dict(self._channels)
        self._ended, self.log_tail = {}, ""
        port = _free_port()
        for rank, name in enumerate(sorted(self._taking_part), 1):
            told = {"start": self._training, "program": program, "orders": dict(orders)}
            self._taking_part[name].send(told | {"rank": rank, "port": port, "hosts": self._count})
        return Meeting(self._count, 0, self._address, port)

    def trouble(self, *, wait_seconds: float = 0.0) -> Failure | None:
        """The reason why another host ends the training, None if it goes on after waiting."""
        deadline = time.monotonic() + wait_seconds
        while True:
            found = self._trouble()
            if found is not None or time.monotonic() >= deadline:
                return found
            time.sleep(POLL_SECONDS)

    def end(self) -> None:
        """End the training on the other hosts; one that does not answer in time is left out."""
        for channel in self._taking_part.values():
            channel.send({"stop": self._training})
        deadline = time.monotonic() + STOP_SECONDS
        for name, channel in self._taking_part.items():
            while not channel.is_lost:
                message = channel.next(wait_seconds=POLL_SECONDS)
                if message is not None and message.get("idle") == self._training:
                    break
                if time.monotonic() > deadline:
                    log.warning("host %s did not end its training and is left out", name)
                    channel.close()
                    break

    def close(self) -> None:
        with self._changed:
            channels = list(self._channels.values())
            self._channels = {}  # None of them is lost.
        for channel in channels:
            channel.send({"end": True})
            channel.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _trouble(self) -> Failure | None:
        for name, channel in self._taking_part.items():
            while (message := channel.next(wait_seconds=0)) is not None:
                self._note(name, message)
            if channel.is_lost:
                return failure("node_lost", f"the host {name} left the training")
        absent = sorted(self._nodes.keys() - self._taking_part.keys())
        if absent:
            left = f"the host {' and '.join(absent)} left before the training began"
            return failure("node_lost", left)
        for ended in self._ended.values():
            if ended.reason is not None and (
                ended.reason.code != "child_died" or time.monotonic() > ended.at + EXPLAIN_SECONDS
            ):
                return ended.reason
        return None

    def _note(self, name: str, message: Mapping[str, Any]) -> None:
        if message.get("ended") != self._training:
            return
        code, reason = known_code(message.get("code")), None
        if code is not None:
            reason = failure(code, f"{message.get('message')} (on host {name})")
        self._ended[name] = _Ended(time.monotonic(), reason)
        self.log_tail += f"\n--- host {name} ---\n{message.get('log', '')}"

    def _accept(self) -> None:
        while True:
            try:
                connection, (address, *_) = self._listener.accept()
            except OSError:  # It was closed.
                return
            arguments = (connection, address)
            threading.Thread(target=self._admit, args=arguments, daemon=True).start()

    def _admit(self, connection: socket.socket, address: str) -> None:
        try:
            channel = Channel(connection, self._key, is_first=True)
            arrival = TypeAdapter(Arrival).validate_python(channel.receive())
        except (OSError, ValueError) as error:
            log.warning("a connection from %s is no host of this allocation: %s", address, error)
            end_connection(connection)
            return
        with self._changed:
            fault = self._fault_in(arrival)
            if fault is not None:
                log.warning("the host %s may not join: %s", arrival.node.name, fault)
                channel.send({"refused": fault})
                channel.close()
                return
            name = arrival.node.name
            self._channels[name], self._nodes[name] = channel, arrival.node
            channel.send({"joined": True})
            channel.listen(lambda: self._lose(name, channel))
            log.info("host %s joined: %d of %d", name, 1 + len(self._channels), self._count)
            self._tell_change()

    def _fault_in(self, arrival: Arrival) -> str | None:
        name = arrival.node.name
        if name == self._own.node.name or name in self._channels:
            return f"a host {name} is here already: set another FINISHLINE_WORKER_NAME"
        if self._names is not None and name not in self._names:
            return f"{name} is none of the hosts that began: {', '.join(sorted(self._names))}"
        if len(self._channels) >= self._count - 1:
            return f"all {self._count} hosts of --nnodes are here"
        return arrival.fault_beside(self._own)

    def _lose(self, name: str, channel: Channel) -> None:
        with self._changed:
            if self._channels.get(name) is not channel:
                return
            del self._channels[name]
            if self._names is None:
                del self._nodes[name]
            log.warning("host %s is gone", name)
            self._tell_change()

    def _tell_change(self) -> None:
        self._on_change(self._is_complete())
        self._changed.notify_all()

    def _is_complete(self) -> bool:
        return len(self._channels) == self._count - 1


def _listen(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
