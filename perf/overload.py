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
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import httpx2
import psutil

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from perf.harness import CHECKOUT, DIGITS, Bars
from server.base.database import Database
from server.base.models import Submission
from server.base.models.visibility import reveal
from server.base.schema import migrate
from server.people.accounts import create_token
from tests.support.processes import free_port, stop, wait_for
from tests.support.run_logs import make_run_log

FACTOR = 5
CLIENTS, CAPACITY_SECONDS = 16, 8.0
MOST_OPEN = 1500
ADDRESSES = 2000
WRITE_SHARE = 0.05
DIFFERENT_POSTS = 1000
ANSWER_SECONDS = 30.0
# A server closes connections that are silent for five seconds.
REUSE_SECONDS = 3.0
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)")
RECOVERY_SECONDS = 2.0
MOST_GROWTH = 0.05
QUALITIES = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]
BARS = Bars("overload")
Part = tuple[str, tuple[str, bytes]]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Load:
    """Requests, each over a free connection or a fresh one, and counts of their outcomes."""

    def __init__(self, port: int, requests: Iterator[bytes]) -> None:
        self.statuses: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()
        self.seconds: dict[bool, list[float]] = {True: [], False: []}
        self._port = port
        self._requests = requests
        self._free: list[tuple[float, Connection]] = []

    async def ask(self) -> None:
        """Send the next request and read its answer."""
        began, request = time.perf_counter(), next(self._requests)
        connection = kept = self._kept()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection = kept or await asyncio.open_connection("127.0.0.1", self._port)
                head = await ask_over(connection, request)
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

    def _kept(self) -> Connection | None:
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


async def ask_over(connection: Connection, request: bytes) -> bytes:
    """Send a request and read the whole response; return its head."""
    reader, writer = connection
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    (length,) = LENGTH.findall(head)
    await reader.readexactly(int(length))
    return head


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the overload lasts")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), seconds))
    return BARS.exit_code


async def measure(folder: Path, seconds: float) -> None:
    """Start a server, load it, and hold its answers against the bars."""
    port = free_port()
    environment, tokens = prepare(folder)
    log = folder / "server.log"
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port), "--no-access-log"],
        env=environment, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=log.open("wb"),
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        await asyncio.to_thread(
            wait_for, lambda: httpx2.get(f"{url}/healthz", trust_env=False),
            seconds=60, what="the server",
        )  # fmt: skip
        mix = requests_of(
            send_first(url, tokens[0], environment["FINISHLINE_DATABASE_URL"]), tokens
        )
        capacity = await Load(port, mix).closed(clients=CLIENTS, seconds=CAPACITY_SECONDS)
        BARS.say(f"capacity {capacity:.0f} requests/s over {CLIENTS} clients")
        memory: list[float] = []
        watching = asyncio.create_task(watch_memory(psutil.Process(server.pid), memory))
        flood = Load(port, mix)
        await flood.open(rate=FACTOR * capacity, seconds=seconds)
        ended = time.perf_counter()
        flood.close()
        watching.cancel()
        recovery_seconds = await recovered(port, mix) - ended
        judge(flood, memory, recovery_seconds)
    finally:
        stop(server)
    text = log.read_text()
    errors = text.count("unforeseen error") + text.count("Traceback")
    if not BARS.hold("errors in the server's log", errors, at_most=0):
        BARS.say(text[-1500:])


def prepare(folder: Path) -> tuple[dict[str, str], list[str]]:
    """A migrated database with four submitters; the server's settings and their tokens."""
    url = f"sqlite:///{folder / 'finishline.db'}"
    database = Database(url)
    migrate(database)
    with database.write() as session:
        tokens = [
            create_token(session, user_name=f"s-{n}", role="submitter", expires_in=None).secret
            for n in range(4)
        ]
    database.close()
    settings = {
        "FINISHLINE_DATABASE_URL": url,
        "FINISHLINE_ARTIFACTS_DIR": str(folder / "artifacts"),
        "FINISHLINE_BROKER_URL": "redis://127.0.0.1:1/0",  # None is there: nothing is replayed.
        "FINISHLINE_LOG_LEVEL": "error",
        "FINISHLINE_QUOTA_SUBMISSIONS_PER_DAY": "unlimited",
        "FINISHLINE_RATE_WRITES": "6000/minute",
        "FINISHLINE_RATE_READS": "300/minute",
        # As in the image: else each thread keeps memory of its own, and uploads' memory stays.
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "PYTHONPATH": str(CHECKOUT),
    }
    return os.environ | settings, tokens


@cache
def digits_benchmark() -> Benchmark:
    """The definition of digits."""
    return load_benchmark(DIGITS)


def claim_and_logs(number: int) -> list[Part]:
    """The parts of a digits submission of three runs, unlike any other's."""
    digits = digits_benchmark()
    parts = []
    for index in range(3):

        def train_seconds(epoch: int, index: int = index) -> float:
            late = {2: number % 40, 3: number // 40}.get(epoch, 0)  # No training is taken twice.
            return epoch * (0.11 + 0.004 * index) + late * 1e-3

        name, seed = f"run_{index}.log", number * 3 + index
        log = make_run_log(digits, QUALITIES, train_seconds, name=name, seed=seed)
        parts.append(("logs", (name, log)))
    claim = {
        "benchmark": "digits", "division": "closed", "model": "digits reference",
        "framework": "torch 2.13.0", "hyperparameters": {"batch_size": 64},
        "runs": [f"run_{index}.log" for index in range(3)],
        "system": {"name": "perf", "hardware_class": "cpu-perf", "processor": "perf",
                   "processor_count": 2, "memory_gib": 8, "price_usd_per_hour": 0.1,
                   "price_source": "perf"},
    }  # fmt: skip
    return [("submission", ("submission.json", json.dumps(claim).encode())), *parts]


def send_first(url: str, token: str, database_url: str) -> str:
    """The submission that is read, with its curves shown to everybody."""
    answer = httpx2.post(
        f"{url}/api/v1/submissions", files=claim_and_logs(0), timeout=60, trust_env=False,
        headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip
    assert answer.status_code == 201, answer.text
    submission = str(answer.json()["id"])
    database = Database(database_url)
    with database.write() as session:
        reveal(session.get_one(Submission, submission))
    database.close()
    return submission


def requests_of(submission: str, tokens: list[str]) -> Iterator[bytes]:
    """Reads from many addresses and one, and now and then a submission."""
    drawn = random.Random(7)
    paths = [
        f"/api/v1/submissions/{submission}", "/api/v1/submissions?limit=5", "/workers",
        f"/submissions/{submission}", "/api/v1/verifications?limit=5", "/api/v1/queue",
        f"/api/v1/submissions/{submission}/runs/0/curve",
    ]  # fmt: skip
    numbers = range(1, DIFFERENT_POSTS + 1)
    made = [
        post_of(claim_and_logs(number), token=tokens[number % len(tokens)], key=f"perf-{number}")
        for number in numbers
    ]
    # After the last the first is sent again, under its key: it is answered as it was.
    posts = itertools.cycle(made)
    while True:
        number = 0 if drawn.random() < 1 / FACTOR else drawn.randrange(1, ADDRESSES)
        origin = f"X-Forwarded-For: 10.0.{number // 250}.{1 + number % 250}\r\n".encode()
        if drawn.random() < WRITE_SHARE:
            yield next(posts).replace(b"\r\n", b"\r\n" + origin, 1)
            continue
        head = f"GET {drawn.choice(paths)} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
        yield head + origin + b"\r\n"


def post_of(files: Sequence[Part], *, token: str, key: str) -> bytes:
    """A submission as bytes, under its key."""
    built = httpx2.Request(
        "POST", "http://127.0.0.1/api/v1/submissions", files=files,
        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": key},
    )  # fmt: skip
    body = built.read()
    lines = [f"{name}: {value}" for name, value in built.headers.items()]
    return "\r\n".join(["POST /api/v1/submissions HTTP/1.1", *lines, "", ""]).encode() + body


async def watch_memory(process: psutil.Process, samples: list[float]) -> None:
    """Resident MiB of the server, each second."""
    while True:
        samples.append(process.memory_info().rss / 2**20)
        await asyncio.sleep(1.0)


async def recovered(port: int, mix: Iterator[bytes]) -> float:
    """Wait until four clients get no 503 and each answer in a second; the moment, inf at 30 s."""
    until = time.perf_counter() + 30.0
    while time.perf_counter() < until:
        load = Load(port, mix)
        await load.closed(clients=4, seconds=0.25)
        load.close()
        refused = load.statuses[503] + load.faults.total()
        if not refused and max(load.seconds[True], default=9.0) < 1.0:
            return time.perf_counter()
    return float("inf")


def judge(flood: Load, memory: list[float], recovery_seconds: float) -> None:
    """Print the figures, and hold them against their bars."""
    warm = memory[len(memory) // 4 :]
    mean = statistics.fmean(warm)
    rise = statistics.linear_regression(range(len(warm)), warm).slope * (len(warm) - 1)
    admitted, refused = flood.seconds[True], flood.seconds[False]
    BARS.say(f"answered {dict(sorted(flood.statuses.items()))}; faults {dict(flood.faults)}")
    BARS.say(f"admitted {spread(admitted)}; refused {spread(refused)}")
    BARS.say(f"memory {mean:.0f} MiB once warm, trend {rise:+.1f} MiB")
    BARS.hold("answers that are neither good nor a refusal", flood.faults.total(), at_most=0)
    for status in (429, 503):
        BARS.hold(f"answers {status}", flood.statuses[status], at_least=1)
    BARS.hold("growth of memory", rise / mean, at_most=MOST_GROWTH)
    BARS.hold("recovered after the end", recovery_seconds, " s", at_most=RECOVERY_SECONDS)


def spread(seconds: list[float]) -> str:
    """Median and 99th percentile in words."""
    quantiles = statistics.quantiles(seconds, n=100)
    return f"p50 {quantiles[49]:.3f} s, p99 {quantiles[98]:.3f} s"


if __name__ == "__main__":
    sys.exit(main())
