"""Do limits hold when five times as much is asked as can be answered? `python -m perf.overload`.

A real server on SQLite; reads that no cache answers and submissions, mixed. First its capacity: 16
clients that ask again as soon as they are answered. Then five times that rate for 60 s
(`--seconds 300` for longer), whatever the answers, from two thousand addresses and a
fifth of it from a single one.

Exit code 1 unless every answer is 2xx, or 429 or 503 with Retry-After; memory does not grow (its
trend once warm is below 5 %); and within 2 s after the end everything is answered again.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil

from perf.harness import Bars, percentiles
from perf.servers import (
    Streams,
    ask_over,
    environment_of,
    make_tokens,
    running_database,
    running_server,
)
from perf.submission_writes import Requests

FACTOR = 5
CLIENTS, CAPACITY_SECONDS = 16, 8.0
MOST_OPEN = 1500
ADDRESSES = 2000
WRITE_SHARE = 0.05
ANSWER_SECONDS = 30.0
# A server closes connections that are silent for five seconds.
REUSE_SECONDS = 3.0
RECOVERY_SECONDS = 2.0
MOST_GROWTH = 0.05
QUALITIES = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]
SETTINGS = {
    "FINISHLINE_BROKER_URL": "redis://127.0.0.1:1/0",  # None is there: nothing is replayed.
    "FINISHLINE_LOG_LEVEL": "error",
    "FINISHLINE_RATE_LIMITS": "true",
    "FINISHLINE_RATE_WRITES": "6000/minute",
    "FINISHLINE_RATE_READS": "300/minute",
    # As in the image: else each thread keeps memory of its own, and uploads' memory stays.
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
BARS = Bars("overload")


class Flood:
    """Requests, each over a free connection or a fresh one, and counts of their outcomes."""

    def __init__(self, port: int, requests: Iterator[bytes]) -> None:
        self.statuses: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()
        self.seconds: dict[bool, list[float]] = {True: [], False: []}
        self._port = port
        self._requests = requests
        self._free: list[tuple[float, Streams]] = []

    async def ask(self) -> None:
        """Send the next request and read its answer."""
        began, request = time.perf_counter(), next(self._requests)
        connection = kept = self._kept()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = kept or await asyncio.open_connection("127.0.0.1", self._port)
                head, _ = await ask_over(connection, request)
        except (OSError, EOFError, TimeoutError) as error:
            where = "a kept" if kept else "a fresh" if connection else "no"
            kind = request[: request.index(b" ")].decode()
            self.faults[f"{type(error).__name__} of a {kind} over {where} connection"] += 1
            return
        now = time.perf_counter()
        status = int(head[9:12])
        self.statuses[status] += 1
        self.seconds[status < 300].append(now - began)
        if not 200 <= status < 300 and (status not in (429, 503) or b"\nretry-after:" not in head):
            self.faults[f"status {status}"] += 1
        if b"\nconnection: close" in head:
            connection[1].close()
        else:
            self._free.append((now, connection))

    def _kept(self) -> Streams | None:
        """The connection that was used last, unless the server has closed it by now."""
        while self._free:
            used_at, connection = self._free.pop()
            if time.perf_counter() - used_at < REUSE_SECONDS:
                return connection
            connection[1].close()
        return None

    def close(self) -> None:
        """Close the free connections."""
        for _, (_, writer) in self._free:
            writer.close()

    async def closed(self, *, clients: int, seconds: float) -> float:
        """Each client asks again as soon as it is answered; good answers a second."""
        began = time.perf_counter()

        async def keep_asking() -> None:
            while time.perf_counter() - began < seconds:
                await self.ask()

        await asyncio.gather(*(keep_asking() for _ in range(clients)))
        return len(self.seconds[True]) / (time.perf_counter() - began)

    async def open(self, *, rate: float, seconds: float) -> None:
        """So many requests a second, whatever the answers."""
        began, sent = time.perf_counter(), 0
        asking: set[asyncio.Task[None]] = set()
        while (now := time.perf_counter() - began) < seconds:
            for _ in range(int(now * rate) - sent):
                sent += 1
                if len(asking) >= MOST_OPEN:
                    self.faults["not sent"] += 1
                    continue
                task = asyncio.create_task(self.ask())
                asking.add(task)
                task.add_done_callback(asking.discard)
            await asyncio.sleep(0.002)
        await asyncio.gather(*asking)


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the overload lasts")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name, running_database("sqlite", Path(name)) as url:
        folder = Path(name)
        tokens = list(make_tokens(url, {f"s-{n}": "submitter" for n in range(4)}).values())
        environment = environment_of(url, folder, **SETTINGS)
        log = folder / "server.log"
        with running_server(environment, log=log) as server:
            asyncio.run(measure(server.port, server.process, tokens, seconds))
        text = log.read_text()
    errors = text.count("unforeseen error") + text.count("Traceback")
    if not BARS.hold("errors in the server's log", errors, at_most=0):
        BARS.say(text[-1500:])
    return BARS.exit_code


async def measure(port: int, process: psutil.Process, tokens: list[str], seconds: float) -> None:
    """Load a server, and compare its answers with the bars."""
    posts = Requests(3, QUALITIES, late=(2, 3, 4, 5))
    connection = await asyncio.open_connection("127.0.0.1", port)
    _, body = await ask_over(connection, posts.make(tokens[0]))
    connection[1].close()
    submission = str(json.loads(body)["id"])
    mix = requests_of(submission, posts, tokens)
    capacity = await Flood(port, mix).closed(clients=CLIENTS, seconds=CAPACITY_SECONDS)
    BARS.say(f"capacity {capacity:.0f} requests/s over {CLIENTS} clients")
    memory: list[float] = []

    async def watch_memory() -> None:
        while True:
            memory.append(process.memory_info().rss / 2**20)
            await asyncio.sleep(1.0)

    watching = asyncio.create_task(watch_memory())
    flood = Flood(port, mix)
    await flood.open(rate=FACTOR * capacity, seconds=seconds)
    ended = time.perf_counter()
    flood.close()
    watching.cancel()
    judge(flood, memory, await recovered(port, mix) - ended)


def requests_of(submission: str, posts: Requests, tokens: list[str]) -> Iterator[bytes]:
    """Reads from many addresses and one, and now and then a submission."""
    drawn = random.Random(7)
    paths = [
        f"/api/v1/submissions/{submission}", "/api/v1/submissions?limit=5", "/workers",
        f"/submissions/{submission}", "/api/v1/verifications?limit=5", "/api/v1/queue",
        f"/api/v1/submissions/{submission}/runs/0/curve",
    ]  # fmt: skip
    while True:
        number = 0 if drawn.random() < 1 / FACTOR else drawn.randrange(1, ADDRESSES)
        origin = f"X-Forwarded-For: 10.0.{number // 250}.{1 + number % 250}\r\n".encode()
        if drawn.random() < WRITE_SHARE:
            yield posts.make(drawn.choice(tokens)).replace(b"\r\n", b"\r\n" + origin, 1)
        else:
            head = f"GET {drawn.choice(paths)} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
            yield head + origin + b"\r\n"


async def recovered(port: int, mix: Iterator[bytes]) -> float:
    """Wait until four clients get no 503 and each answer in a second; the moment, inf at 30 s."""
    until = time.perf_counter() + 30.0
    while time.perf_counter() < until:
        flood = Flood(port, mix)
        await flood.closed(clients=4, seconds=0.25)
        flood.close()
        refused = flood.statuses[503] + flood.faults.total()
        if not refused and max(flood.seconds[True], default=9.0) < 1.0:
            return time.perf_counter()
    return float("inf")


def judge(flood: Flood, memory: list[float], recovery_seconds: float) -> None:
    """Print the figures, and compare them with their bars."""
    warm = memory[len(memory) // 4 :]
    mean = statistics.fmean(warm)
    rise = statistics.linear_regression(range(len(warm)), warm).slope * (len(warm) - 1)
    BARS.say(f"answered {dict(sorted(flood.statuses.items()))}; faults {dict(flood.faults)}")
    for name, seconds in (("admitted", flood.seconds[True]), ("refused", flood.seconds[False])):
        p50, p99 = percentiles(seconds)
        BARS.say(f"{name} p50 {p50:.3f} s, p99 {p99:.3f} s")
    BARS.say(f"memory {mean:.0f} MiB once warm, trend {rise:+.1f} MiB")
    BARS.hold("answers that are neither good nor a refusal", flood.faults.total(), at_most=0)
    for status in (429, 503):
        BARS.hold(f"answers {status}", flood.statuses[status], at_least=1)
    BARS.hold("growth of memory", rise / mean, at_most=MOST_GROWTH)
    BARS.hold("recovered after the end", recovery_seconds, " s", at_most=RECOVERY_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
