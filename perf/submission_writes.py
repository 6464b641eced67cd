"""Submissions a second through the API: `python -m perf.submission_writes`.

Measures SQLite with one server process, as `finishline up` has it, and PostgreSQL with two. A
submission has 5 run logs of 100 evaluations as the digits reference writes them, 51 kB each, and 8
users send one after the other. Exits with 1 where a submission is refused.

On ext4 a new file is ten times as dear, 0.2 ms and more, where many were deleted in the minutes
before, as tests do: it passes over their places. TMPDIR names another file system.
"""

import argparse
import asyncio
import itertools
import json
import re
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from finishline.rules.benchmarks.benchmark import load_benchmark
from perf.harness import DIGITS, Bars, percentiles
from perf.servers import (
    Server,
    ask_over,
    claim_of,
    cpu_seconds,
    environment_of,
    make_tokens,
    running_database,
    running_server,
)
from tests.support.run_logs import make_run_log

CLIENTS = 8
PROCESSES = {"sqlite": 1, "postgresql": 2}
RUNS = 5
QUALITIES = [*(round(15 + 0.8 * epoch, 4) for epoch in range(1, 100)), 98.0]
BOUNDARY = "finishline-perf-boundary"
TIME_AND_EPOCH = re.compile(rb'"time_ms":(?P<time>[\d.]+)[^\n]*"epoch_num":(?P<epoch>\d+)')


class Log:
    """A log in pieces, of which other trainings are made: no server takes one twice.

    The evaluations of `epochs` come so many milliseconds later as a digit of the number says.
    """

    BASE = 40

    def __init__(self, content: bytes, epochs: Sequence[int]) -> None:
        self._pieces: list[bytes] = []
        self._times: list[tuple[float, int]] = []
        rest = 0
        for found in TIME_AND_EPOCH.finditer(content):
            if int(found["epoch"]) in epochs:
                self._pieces.append(content[rest : found.start("time")])
                self._times.append((float(found["time"]), epochs.index(int(found["epoch"]))))
                rest = found.end("time")
        self._last = content[rest:]

    def training(self, number: int) -> bytes:
        """The log of one training, with a curve as any other's."""
        times = [f"{t + number // self.BASE**place % self.BASE}" for t, place in self._times]
        pieces = zip(self._pieces, times, strict=True)
        return b"".join(piece + time.encode() for piece, time in pieces) + self._last


class Requests:
    """Submissions as the bytes of a request; each has a key and trainings of its own."""

    def __init__(
        self, runs: int, qualities: Sequence[float], *, late: Sequence[int], first: int = 0
    ) -> None:
        self._runs, self._numbers = runs, itertools.count(first)
        self._logs = [Log(_make_log(index, qualities), late) for index in range(runs)]

    def make(self, token: str) -> bytes:
        """The next request, of whom a token belongs to."""
        number = next(self._numbers)
        claim = claim_of(self._runs) | {"notes": f"training {number}"}
        parts = [part("submission", "submission.json", json.dumps(claim).encode())]
        for index, log in enumerate(self._logs):
            parts.append(part("logs", f"run_{index}.log", log.training(number)))
        body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
        head = (
            "POST /api/v1/submissions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {token}\r\nIdempotency-Key: {secrets.token_hex(12)}\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def _make_log(index: int, qualities: Sequence[float]) -> bytes:
    def train_seconds(epoch: int) -> float:
        # No two trainings agree in their times.
        return 0.11 * epoch + 0.0013 * (index + 1) * ((epoch * 7) % 5)

    name, seed = f"run_{index}.log", 100 + index
    return bytes(
        make_run_log(load_benchmark(DIGITS), qualities, train_seconds, name=name, seed=seed)
    )


def part(field_name: str, file: str, content: bytes) -> bytes:
    """A file of a form as bytes."""
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field_name}"; filename="{file}"'
        "\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    return head.encode() + content + b"\r\n"


def main() -> int:
    """Measure both databases and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(PROCESSES))
    asked = parser.parse_args()
    bars = Bars("submission_writes")
    for kind in [asked.only] if asked.only else PROCESSES:
        with tempfile.TemporaryDirectory() as folder:
            measure(bars, kind, Path(folder), seconds=asked.seconds, rounds=asked.rounds)
    return bars.exit_code


def measure(bars: Bars, kind: str, folder: Path, *, seconds: float, rounds: int) -> None:
    """Print the figures of some rounds on one database."""
    with ExitStack() as stack:
        url = stack.enter_context(running_database(kind, folder))
        tokens = list(make_tokens(url, {f"perf{n}": "submitter" for n in range(CLIENTS)}).values())
        environment = environment_of(url, folder)
        servers = [stack.enter_context(running_server(environment)) for _ in range(PROCESSES[kind])]
        processes = [server.process for server in servers]
        requests = Requests(RUNS, QUALITIES, late=(20, 40, 60, 80))
        asyncio.run(send_for(1.0, servers, tokens, requests))  # Warms it up.
        rates, waits, cpu, refused = [], [], [], 0
        for _ in range(rounds):
            before, began = cpu_seconds(*processes), time.perf_counter()
            answers = asyncio.run(send_for(seconds, servers, tokens, requests))
            rates.append(len(answers) / (time.perf_counter() - began))
            cpu.append((cpu_seconds(*processes) - before) / len(answers))
            waits += [each for each, _ in answers]
            refused += sum(not is_taken for _, is_taken in answers)
    p50, p99 = (1e3 * each for each in percentiles(waits))
    bars.hold(f"{kind}: submissions", statistics.median(rates), "/s")
    bars.hold(f"{kind}: answered, p50", p50, " ms")
    bars.hold(f"{kind}: answered, p99", p99, " ms")
    bars.hold(f"{kind}: CPU each", 1e3 * statistics.median(cpu), " ms")
    bars.hold(f"{kind}: refused", refused, at_most=0)


async def send_for(
    seconds: float, servers: list[Server], tokens: list[str], requests: Requests
) -> list[tuple[float, bool]]:
    """Submit for so long, everybody as soon as they are answered; seconds of each, and if taken."""
    answers: list[tuple[float, bool]] = []
    until = time.perf_counter() + seconds

    async def client(server: Server, token: str) -> None:
        connection = await asyncio.open_connection("127.0.0.1", server.port)
        while (started := time.perf_counter()) < until:
            head, _ = await ask_over(connection, requests.make(token))
            answers.append((time.perf_counter() - started, head.startswith(b"http/1.1 201")))
        connection[1].close()

    each = (client(servers[n % len(servers)], token) for n, token in enumerate(tokens))
    await asyncio.gather(*each)
    return answers


if __name__ == "__main__":
    sys.exit(main())
