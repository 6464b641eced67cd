"""Load for perf/board_reads.py: connections that ask again as soon as they are answered."""

import asyncio
import re
import time
from dataclasses import dataclass, field

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


@dataclass
class Load:
    """What is asked for and what became of it; seconds of each answer to its last byte."""

    request: bytes
    status: bytes
    until: float = 0.0
    answers: int = 0
    seconds: list[float] = field(default_factory=list)
    faults: list[bytes] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """Sends a request, counts the answer's bytes, sends the next."""

    def __init__(self, load: Load, ended: asyncio.Future[None]) -> None:
        self._load = load
        self._ended = ended
        self._received = bytearray()
        self._wanted = -1
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, received: bytes) -> None:
        """Count until the answer is whole."""
        self._received += received
        if self._wanted < 0:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end])
            length = LENGTH.search(head)
            is_known = head.startswith(b"HTTP/1.1 304")
            self._wanted = end + 4 + (int(length[1]) if length and not is_known else 0)
            if not head.startswith(b"HTTP/1.1 " + self._load.status):
                self._load.faults.append(head)
        if len(self._received) < self._wanted:
            return
        now = time.perf_counter()
        self._load.answers += 1
        self._load.seconds.append(now - self._sent_at)
        self._received.clear()
        self._wanted = -1
        if now < self._load.until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if not self._ended.done():
            self._ended.set_result(None)


async def put_load(port: int, load: Load, *, connections: int, seconds: float) -> Load:
    """Ask over so many connections for so long."""
    loop = asyncio.get_running_loop()
    load.until = time.perf_counter() + seconds
    ended = [loop.create_future() for _ in range(connections)]
    for future in ended:
        await loop.create_connection(lambda f=future: Connection(load, f), "127.0.0.1", port)
    await asyncio.gather(*ended)
    return load


def request_for(path: str, **headers: str) -> bytes:
    """A GET as bytes."""
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()
