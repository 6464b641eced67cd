"""Do limits hold when five times as much is asked as can be answered? `python perf/overload.py`.

A real server on SQLite; reads that no memory answers and submissions, mixed. First its capacity: 16
connections that ask again as soon as they are answered. Then five times that rate for 60 s
(`--seconds 300` for longer), from two thousand addresses and a fifth of it from a single one,
whatever the answers; beside it 1,000 idle connections, slow senders and slow readers, a worker that
replays one verification after the other, and somebody who asks /healthz.

Exit code 1 unless every answer is 2xx, or 429 or 503 with Retry-After; 99 in 100 admitted ones take
less than 3 s and of /healthz less than 1 s; every verification ends as it should; memory does not
grow (its trend over the whole run is below 5 %, once warm); and within 2 s after the end everything
is answered again.

Memory is what is resident. Its part of files and of SQLite's shared index (RssFile, RssShmem) stays
as it is, so what grows is the heap. Some of it may: SQLite's connections fill what they are allowed
to keep, and of each submission that is accepted meanwhile a board keeps 4 KB.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from finishline.rules.benchmarks.benchmark import load_benchmark
from perf.open_load import Outcome, closed_loop, open_loop, percentile
from server.accounts.service import create_token
from server.database import Database
from server.models import Submission
from server.schema import migrate
from server.submissions.visibility import reveal
from tests.support.processes import free_port, stop, wait_for
from tests.support.run_logs import make_run_log

CHECKOUT = Path(__file__).resolve().parents[1]
FACTOR = 5
CAPACITY_CONNECTIONS, CAPACITY_SECONDS = 16, 10.0
MOST_CONNECTIONS = 1500
IDLE_CONNECTIONS, SLOW_SENDERS, SLOW_READERS = 1000, 30, 30
ADDRESSES = 2000
WRITE_SHARE = 0.05
DIFFERENT_POSTS = 1000
ADMITTED_P99_SECONDS, HEALTH_P99_SECONDS = 3.0, 1.0
RECOVERY_SECONDS = 2.0
MOST_GROWTH = 0.05
QUALITIES = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the overload lasts")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(Path(folder), seconds))


async def measure(folder: Path, seconds: float) -> int:
    """Start everything, load it, and say what missed its bar."""
    port = free_port()
    environment, tokens = prepare(folder, port)
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port),
         "--no-access-log"],
        env=environment, cwd=CHECKOUT, stdout=subprocess.DEVNULL,
        stderr=(folder / "server.log").open("wb"),
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        await asyncio.to_thread(
            wait_for, lambda: httpx2.get(f"{url}/healthz", trust_env=False),
            seconds=60, what="the server",
        )  # fmt: skip
        httpx2.get(f"{url}/openapi.json", trust_env=False, timeout=60)  # Made once, in a second.
        submission = send_first(url, tokens["submitter-0"])
        show_runs(environment["FINISHLINE_DATABASE_URL"], submission)
        mix = requests_of(submission, [tokens[f"submitter-{n}"] for n in range(4)])
        outcome, took = await closed_loop(
            port, mix, connections=CAPACITY_CONNECTIONS, seconds=CAPACITY_SECONDS
        )
        capacity = sum(outcome.statuses[status] for status in (200, 201)) / took
        print(
            f"overload: capacity {capacity:.0f} requests/s over {CAPACITY_CONNECTIONS} "
            f"connections, p99 {1000 * percentile(outcome.admitted_seconds, 0.99):.0f} ms",
            flush=True,
        )
        company = start_company(environment, tokens, submission)
        assert company.stdout is not None
        await asyncio.to_thread(company.stdout.readline)
        crowd = await gather_crowd(port, tokens["submitter-0"])
        memory = asyncio.create_task(watch_memory(psutil.Process(server.pid)))
        flood = await open_loop(
            port, mix, rate=FACTOR * capacity, seconds=seconds, most=MOST_CONNECTIONS
        )
        ended = time.perf_counter()
        recovery = await recovered(port, mix)
        print(f"overload: recovered {recovery - ended:.2f} s after the end", flush=True)
        memory.cancel()
        samples = MEMORY.copy()
        for writer in crowd:
            writer.close()
        company.send_signal(signal.SIGTERM)
        beside = json.loads((await asyncio.to_thread(company.communicate, timeout=60))[0])
        missed = verdicts(flood, beside, samples, recovery - ended, rate=FACTOR * capacity)
    finally:
        stop(server)
    log = (folder / "server.log").read_text()
    if "unforeseen error" in log or "Traceback" in log:
        missed.append("the server's log has an error: " + log[log.find("Traceback") :][-1500:])
    for each in missed:
        print(f"overload: MISSED: {each}")
    return int(bool(missed))


def prepare(folder: Path, port: int) -> tuple[dict[str, str], dict[str, str]]:
    """A migrated database with people, and the server's settings."""
    url = f"sqlite:///{folder / 'finishline.db'}"
    database = Database(url)
    migrate(database)
    tokens = {}
    with database.write() as session:
        # The organiser's own worker: nobody has to train its runs again.
        for name, user, role in [
            *[(f"submitter-{n}", f"submitter-{n}", "submitter") for n in range(4)],
            ("organiser", "organiser", "organiser"),
            ("worker", "organiser", "worker"),
        ]:
            made = create_token(session, user_name=user, role=role, expires_in=None)
            tokens[name] = made.secret
    database.close()
    settings = {
        "FINISHLINE_DATABASE_URL": url,
        "FINISHLINE_ARTIFACTS_DIR": str(folder / "artifacts"),
        "FINISHLINE_BROKER_URL": "redis://127.0.0.1:1/0",  # None is there: attempts are claimed.
        "FINISHLINE_URL": f"http://127.0.0.1:{port}",
        "FINISHLINE_LOG_LEVEL": "error",
        "FINISHLINE_QUOTA_SUBMISSIONS_PER_DAY": "unlimited",
        "FINISHLINE_RATE_WRITES": "6000/minute",
        "FINISHLINE_RATE_READS": "300/minute",
        # As in the image: else each thread keeps memory of its own, and what uploads leave stays.
        "MALLOC_ARENA_MAX": "2",
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_TRIM_THRESHOLD_": "131072",
        "PYTHONPATH": str(CHECKOUT),
    }
    return os.environ | settings, tokens


def claim_and_logs(number: int) -> list[tuple[str, tuple[str, bytes]]]:
    """The parts of a digits submission of three runs, unlike any other's."""
    digits = load_benchmark(CHECKOUT / "benchmarks" / "digits.toml")
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


def send_first(url: str, token: str) -> str:
    """The submission that is read and verified."""
    answer = httpx2.post(
        f"{url}/api/v1/submissions", files=claim_and_logs(0), timeout=60, trust_env=False,
        headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def show_runs(database_url: str, submission: str) -> None:
    """Show the claim's curves to everybody, as its first verdict would."""
    database = Database(database_url)
    with database.write() as session:
        reveal(session.get_one(Submission, submission))
    database.close()


def requests_of(submission: str, tokens: list[str]) -> Iterator[bytes]:
    """Reads from many addresses and one, and now and then a submission."""
    drawn = random.Random(7)
    paths = [
        f"/api/v1/submissions/{submission}", "/api/v1/submissions?limit=5", "/workers",
        f"/submissions/{submission}", "/api/v1/verifications?limit=5", "/api/v1/queue",
        f"/api/v1/submissions/{submission}/runs/0/curve",
    ]  # fmt: skip
    numbers = range(1, DIFFERENT_POSTS + 1)
    posts = [post_of(number, tokens[number % len(tokens)]) for number in numbers]
    # After the last the first is sent again, under its key: it is answered as it was.
    return _mixed(paths, itertools.cycle(posts), drawn)


def _mixed(paths: list[str], posts: Iterator[bytes], drawn: random.Random) -> Iterator[bytes]:
    while True:
        number = 0 if drawn.random() < 1 / FACTOR else drawn.randrange(1, ADDRESSES)
        origin = f"X-Forwarded-For: 10.0.{number // 250}.{1 + number % 250}\r\n".encode()
        if drawn.random() < WRITE_SHARE:
            yield next(posts).replace(b"\r\n", b"\r\n" + origin, 1)
            continue
        head = f"GET {drawn.choice(paths)} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
        yield head + origin + b"\r\n"


def post_of(number: int, token: str) -> bytes:
    """A submission as bytes."""
    built = httpx2.Request(
        "POST", "http://127.0.0.1/api/v1/submissions", files=claim_and_logs(number),
        headers={"Authorization": f"Bearer {token}", "Idempotency-Key": f"perf-{number}"},
    )  # fmt: skip
    body = built.read()
    lines = [f"{name}: {value}" for name, value in built.headers.items()]
    return "\r\n".join(["POST /api/v1/submissions HTTP/1.1", *lines, "", ""]).encode() + body


def start_company(
    environment: dict[str, str], tokens: dict[str, str], submission: str
) -> "subprocess.Popen[bytes]":
    """The worker and the watcher, in a process of their own."""
    beside = {
        "PERF_WORKER_TOKEN": tokens["worker"],
        "PERF_ORGANISER_TOKEN": tokens["organiser"],
        "PERF_SUBMISSION": submission,
    }
    program = Path(__file__).with_name("overload_company.py")
    return subprocess.Popen(
        [sys.executable, str(program)], env=environment | beside, stdout=subprocess.PIPE
    )


async def gather_crowd(port: int, token: str) -> list[asyncio.StreamWriter]:
    """Connections that say nothing, that send a body byte by byte, that read nothing."""
    crowd = []
    for _ in range(IDLE_CONNECTIONS):
        crowd.append((await asyncio.open_connection("127.0.0.1", port))[1])
    for number in range(SLOW_SENDERS + SLOW_READERS):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        origin = f"X-Forwarded-For: 10.9.0.{number + 1}\r\n"
        if number < SLOW_SENDERS:
            head = (
                "POST /api/v1/submissions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                f"Content-Type: multipart/form-data; boundary=x\r\n{origin}"
                f"Authorization: Bearer {token}\r\n\r\n"
            )
            writer.write(head.encode())
            asyncio.create_task(drip(writer))  # noqa: RUF006  It ends with its connection.
        else:
            writer.write(f"GET /openapi.json HTTP/1.1\r\nHost: x\r\n{origin}\r\n".encode())
            asyncio.create_task(drip(writer))  # noqa: RUF006
        crowd.append(writer)
    return crowd


async def drip(writer: asyncio.StreamWriter) -> None:
    """A byte a second, as long as the other side bears it."""
    while not writer.is_closing():
        writer.write(b"-")
        await asyncio.sleep(1.0)


MEMORY: list[tuple[float, float]] = []


async def watch_memory(process: psutil.Process) -> None:
    """Resident MiB of the server, by the second."""
    while True:
        MEMORY.append((time.perf_counter(), process.memory_info().rss / 2**20))
        await asyncio.sleep(1.0)


async def recovered(port: int, mix: Iterator[bytes]) -> float:
    """When ten requests over four connections are all answered well, asked again until they are."""
    until = time.perf_counter() + 30.0
    while time.perf_counter() < until:
        outcome, _ = await closed_loop(port, mix, connections=4, seconds=0.25)
        refused = outcome.statuses[503] + sum(outcome.faults.values())
        if not refused and percentile(outcome.admitted_seconds, 1.0) < 1.0:
            return time.perf_counter()
    return float("inf")


def trend(samples: list[tuple[float, float]]) -> tuple[float, float]:
    """Mean MiB once warm, and by how much the line of best fit rises over that time."""
    warm = samples[len(samples) // 4 :]
    times = [moment - warm[0][0] for moment, _ in warm]
    mean_time, mean = sum(times) / len(warm), sum(size for _, size in warm) / len(warm)
    spread = sum((t - mean_time) ** 2 for t in times) or 1.0
    slope = sum((t - mean_time) * (s - mean) for t, (_, s) in zip(times, warm, strict=True))
    return mean, slope / spread * times[-1]


def verdicts(
    flood: Outcome,
    beside: dict[str, Any],
    samples: list[tuple[float, float]],
    recovery_seconds: float,
    *,
    rate: float,
) -> list[str]:
    """Print what was measured; what missed its bar."""
    total = sum(flood.statuses.values())
    admitted = percentile(flood.admitted_seconds, 0.99)
    health = percentile(beside["health_seconds"], 0.99)
    mean, rise = trend(samples)
    ended = beside["ended"]
    print(
        f"overload: {rate:.0f} requests/s asked for, {total} answered "
        f"({dict(sorted(flood.statuses.items()))}), {flood.not_sent} not sent for want of "
        f"connections\n"
        f"overload: admitted p50 {percentile(flood.admitted_seconds, 0.5):.3f} s, "
        f"p99 {admitted:.3f} s; refused p50 {percentile(flood.refused_seconds, 0.5):.3f} s, "
        f"p99 {percentile(flood.refused_seconds, 0.99):.3f} s; this program was late by "
        f"{percentile(flood.late_seconds, 0.99):.3f} s at p99\n"
        f"overload: /healthz p50 {percentile(beside['health_seconds'], 0.5):.3f} s, "
        f"p99 {health:.3f} s, {len(beside['health_seconds'])} asked; "
        f"{len(ended)} verifications ended: {sorted(set(ended))}\n"
        f"overload: memory {samples[0][1]:.0f} MiB at the start, {mean:.0f} MiB on average once "
        f"warm, trend {rise:+.1f} MiB, {samples[-1][1]:.0f} MiB at the end"
    )
    by_half_minute = " ".join(f"{size:.0f}" for _, size in samples[::30])
    print(f"overload: memory by half minute, MiB: {by_half_minute}")
    slowest = " ".join(f"{seconds:.1f}" for _, seconds in sorted(flood.slowest_by_second.items()))
    print(f"overload: slowest answer by second: {slowest}")
    checks = [
        (not flood.faults, f"faults: {dict(flood.faults)}"),
        (flood.statuses[429] > 0, "no answer was 429"),
        (flood.statuses[503] > 0, "no answer was 503"),
        (flood.not_sent < 0.01 * total, f"{flood.not_sent} requests could not be sent"),
        (admitted < ADMITTED_P99_SECONDS, f"p99 of admitted requests is {admitted:.2f} s"),
        (health < HEALTH_P99_SECONDS, f"p99 of /healthz is {health:.2f} s"),
        (not beside["faults"], f"beside the flood: {beside['faults'][:5]}"),
        (bool(ended) and set(ended) == {"done"}, f"verifications ended as {ended}"),
        (rise < MOST_GROWTH * mean, f"memory grows by {rise:.1f} MiB"),
        (recovery_seconds < RECOVERY_SECONDS, f"recovery took {recovery_seconds:.2f} s"),
    ]
    return [sentence for is_met, sentence in checks if not is_met]


if __name__ == "__main__":
    sys.exit(main())
