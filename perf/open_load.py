"""Load for perf/overload.py: requests come when they come, whatever became of the last.

Each goes over a free connection, or a fresh one; answers are read by their stated length.
"""

import asyncio
import re
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
RETRY_AFTER = re.compile(rb"\r\nretry-after: *\d+", re.IGNORECASE)
CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
ANSWER_SECONDS = 30.0
# A server closes what is silent for five seconds.
REUSE_SECONDS = 3.0


@dataclass
class Outcome:
    """What became of a load; seconds from a request's start, before it connects, to its answer.

    `late_seconds` are those that this program itself was late to start requests.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    admitted_seconds: list[float] = field(default_factory=list)
    refused_seconds: list[float] = field(default_factory=list)
    late_seconds: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    slowest_by_second: dict[int, float] = field(default_factory=dict)
    began_at: float = field(default_factory=time.perf_counter)
    not_sent: int = 0

    def note(self, status: int, head: bytes, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        second = int(time.perf_counter() - self.began_at)
        self.slowest_by_second[second] = max(self.slowest_by_second.get(second, 0.0), seconds)
        if status in (429, 503):
            self.refused_seconds.append(seconds)
            if not RETRY_AFTER.search(head):
                self.faults[f"{status} without Retry-After"] += 1
        elif 200 <= status < 400:
            self.admitted_seconds.append(seconds)
        else:
            self.faults[f"status {status}"] += 1


class Connection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, outcome: Outcome, idle: "deque[Connection]") -> None:
        self._outcome = outcome
        self._idle = idle
        self._received = bytearray()
        self._started_at = 0.0
        self.busy = False
        self.idle_since = 0.0
        self.ended: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, request: bytes, started_at: float) -> None:
        """Send a request."""
        assert self.transport is not None
        self.busy, self._started_at = True, started_at
        self.transport.write(request)

    def data_received(self, received: bytes) -> None:
        """Read until the answer is whole."""
        self._received += received
        end = self._received.find(b"\r\n\r\n")
        if end < 0 or not self.busy:
            return
        head = bytes(self._received[: end + 2])
        length = LENGTH.search(head)
        if length is None or len(self._received) < end + 4 + int(length[1]):
            return
        self._received.clear()
        self._outcome.note(int(head[9:12]), head, time.perf_counter() - self._started_at)
        self._end()
        if CLOSES.search(head):
            assert self.transport is not None
            self.transport.close()
        elif self.ended is None:
            self.idle_since = time.perf_counter()
            self._idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer that was waited for will not come."""
        self.transport = None
        if self.busy:
            self._outcome.faults["connection lost"] += 1
            self._end()

    def _end(self) -> None:
        self.busy = False
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(None)


def take_free(idle: deque[Connection]) -> Connection | None:
    """The connection that was used last, if one is open still."""
    while idle:
        connection = idle.pop()
        if connection.transport is None:
            continue
        if time.perf_counter() - connection.idle_since < REUSE_SECONDS:
            return connection
        connection.transport.close()
    return None


async def open_loop(
    port: int, requests: Iterator[bytes], *, rate: float, seconds: float, most: int
) -> Outcome:
    """So many requests a second over at most so many connections, whatever the answers."""
    outcome, idle = Outcome(), deque[Connection]()
    connections: list[Connection] = []
    loop = asyncio.get_running_loop()
    opening: set[asyncio.Task[None]] = set()
    began = time.perf_counter()

    async def send_over_new(request: bytes, started_at: float) -> None:
        connection = Connection(outcome, idle)
        connections.append(connection)
        try:
            await loop.create_connection(lambda: connection, "127.0.0.1", port)
        except OSError as error:
            outcome.faults[f"no connection: {type(error).__name__}"] += 1
            connections.remove(connection)
            return
        connection.ask(request, started_at)

    sent = 0
    while (now := time.perf_counter() - began) < seconds:
        while sent < now * rate:
            started_at = time.perf_counter()
            outcome.late_seconds.append(started_at - began - sent / rate)
            sent += 1
            request = next(requests)
            free = take_free(idle)
            if free is not None:
                free.ask(request, started_at)
                continue
            if len(connections) >= most:
                connections[:] = [each for each in connections if each.busy or each.transport]
            if len(connections) >= most:
                outcome.not_sent += 1
                continue
            task = asyncio.create_task(send_over_new(request, started_at))
            opening.add(task)
            task.add_done_callback(opening.discard)
        await asyncio.sleep(0.002)
    until = time.perf_counter() + ANSWER_SECONDS
    while any(each.busy for each in connections) or opening:
        if time.perf_counter() > until:
            outcome.faults["no answer"] += sum(each.busy for each in connections)
            break
        await asyncio.sleep(0.01)
    for each in connections:
        each.busy = False
        if each.transport is not None:
            each.transport.close()
    return outcome


async def closed_loop(
    port: int, requests: Iterator[bytes], *, connections: int, seconds: float
) -> tuple[Outcome, float]:
    """Each connection asks again as soon as it is answered; also how long that took."""
    outcome, idle = Outcome(), deque[Connection]()
    began = time.perf_counter()

    async def keep_asking() -> None:
        loop = asyncio.get_running_loop()
        connection: Connection | None = None
        while time.perf_counter() - began < seconds:
            if connection is None or connection.transport is None:
                connection = Connection(outcome, idle)
                await loop.create_connection(lambda made=connection: made, "127.0.0.1", port)
            connection.ended = loop.create_future()
            connection.ask(next(requests), time.perf_counter())
            await asyncio.wait_for(connection.ended, ANSWER_SECONDS)
        if connection is not None and connection.transport is not None:
            connection.transport.close()

    await asyncio.gather(*(keep_asking() for _ in range(connections)))
    return outcome, time.perf_counter() - began


def percentile(values: list[float], share: float) -> float:
    """The value that this share of the others does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
