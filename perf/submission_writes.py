"""Submissions a second through the API: `python -m perf.submission_writes`.

Measures SQLite with one server process, as `finishline up` has it, and PostgreSQL with two. A
submission has 5 run logs of 100 evaluations as the digits reference writes them, 51 kB each, and 8
users send one after the other. Exit code 1 where a submission is not taken.

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
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from finishline.rules.benchmarks.benchmark import load_benchmark
from perf.harness import DIGITS, percentiles, print_table
from perf.servers import (
    Server,
    cpu_seconds,
    environment_of,
    make_tokens,
    running_database,
    running_server,
)
from tests.support.run_logs import make_run_log

CLIENTS = 8
PROCESSES = {"sqlite": 1, "postgresql": 2}
RUNS, EVALUATIONS = 5, 100
BOUNDARY = "finishline-perf-boundary"
TIME_AND_EPOCH = re.compile(rb'"time_ms":(?P<time>[\d.]+)[^\n]*"epoch_num":(?P<epoch>\d+)')
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
CLAIM = {
    "benchmark": "digits",
    "division": "closed",
    "model": "digits reference",
    "framework": "torch 2.13.0",
    "system": {
        "name": "machine of the measurement",
        "hardware_class": "cpu-perf",
        "processor": "a processor",
        "processor_count": 2,
        "memory_gib": 24,
    },
    "hyperparameters": {"batch_size": 64},
    "runs": [f"run_{index}.log" for index in range(RUNS)],
}


def main() -> None:
    """Measure both databases and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(PROCESSES))
    asked = parser.parse_args()
    rows = []
    for kind in [asked.only] if asked.only else PROCESSES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(kind, Path(folder), seconds=asked.seconds, rounds=asked.rounds))
    print_table(("database", "submissions/s", "p50", "p99", "CPU each"), rows)


def measure(kind: str, folder: Path, *, seconds: float, rounds: int) -> list[str]:
    """The figures of some rounds on one database."""
    with ExitStack() as stack:
        url = stack.enter_context(running_database(kind, folder))
        tokens = list(make_tokens(url, {f"perf{n}": "submitter" for n in range(CLIENTS)}).values())
        environment = environment_of(url, folder)
        servers = [stack.enter_context(running_server(environment)) for _ in range(PROCESSES[kind])]
        requests = Requests()
        asyncio.run(send_for(1.0, servers, tokens, requests))  # Warms it up.
        rates, waits, cpu = [], [], []
        for _ in range(rounds):
            processes = [server.process for server in servers]
            before, began = cpu_seconds(*processes), time.perf_counter()
            taken = asyncio.run(send_for(seconds, servers, tokens, requests))
            rates.append(len(taken) / (time.perf_counter() - began))
            cpu.append((cpu_seconds(*processes) - before) / len(taken))
            waits += taken
    p50, p99 = (f"{1e3 * each:.0f} ms" for each in percentiles(waits))
    each = f"{1e3 * statistics.median(cpu):.1f} ms"
    return [kind, f"{statistics.median(rates):.0f}", p50, p99, each]


async def send_for(
    seconds: float, servers: list[Server], tokens: list[str], requests: "Requests"
) -> list[float]:
    """Submit for so long, everybody as soon as they are answered; the seconds of each."""
    taken: list[float] = []
    until = time.perf_counter() + seconds

    async def client(server: Server, token: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        while (started := time.perf_counter()) < until:
            writer.write(requests.make(token))
            head = await reader.readuntil(b"\r\n\r\n")
            found = LENGTH.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
            taken.append(time.perf_counter() - started)
            if not head.startswith(b"HTTP/1.1 201"):
                raise SystemExit(f"submission writes: {(head + body).decode()[:500]}")
        writer.close()

    each = (client(servers[n % len(servers)], token) for n, token in enumerate(tokens))
    await asyncio.gather(*each)
    return taken


def make_logs() -> dict[str, bytes]:
    """The logs of five runs of digits with a hundred evaluations each, as a worker writes them."""
    return {f"run_{index}.log": _make_log(index) for index in range(RUNS)}


def _make_log(index: int) -> bytes:
    benchmark = load_benchmark(DIGITS)
    qualities = [*(round(15 + 0.8 * epoch, 4) for epoch in range(1, EVALUATIONS)), 98.0]

    def train_seconds(epoch: int) -> float:
        # No two trainings agree in their times.
        return 0.11 * epoch + 0.0013 * (index + 1) * ((epoch * 7) % 5)

    log = make_run_log(benchmark, qualities, train_seconds, name="run.log", seed=100 + index)
    return bytes(log)


class Log:
    """A log in pieces, of which other trainings are made: no server takes one twice.

    The evaluations of EPOCHS come so many milliseconds later as a digit of the number says.
    """

    EPOCHS, BASE = (20, 40, 60, 80), 40

    def __init__(self, content: bytes) -> None:
        self._pieces: list[bytes] = []
        self._times: list[tuple[float, int]] = []
        rest = 0
        for found in TIME_AND_EPOCH.finditer(content):
            if int(found["epoch"]) in self.EPOCHS:
                self._pieces.append(content[rest : found.start("time")])
                self._times.append((float(found["time"]), self.EPOCHS.index(int(found["epoch"]))))
                rest = found.end("time")
        self._pieces.append(content[rest:])

    def training(self, number: int) -> bytes:
        """The log of one training, with a curve as any other's."""
        late = [number // self.BASE**place % self.BASE for place in range(len(self.EPOCHS))]
        times = [f"{time + late[place]}".encode() for time, place in self._times]
        return b"".join(
            piece + time for piece, time in zip(self._pieces, [*times, b""], strict=True)
        )


class Requests:
    """Submissions as the bytes of a request; each has a key and trainings of its own."""

    def __init__(self) -> None:
        self._logs = {name: Log(content) for name, content in make_logs().items()}
        self._numbers = itertools.count()

    def make(self, token: str) -> bytes:
        """The next request, of whom a token belongs to."""
        key, number = secrets.token_hex(12), next(self._numbers)
        claim = json.dumps(CLAIM | {"notes": f"training {number}"}).encode()
        parts = [_part("submission", "submission.json", claim)]
        parts += [_part("logs", name, log.training(number)) for name, log in self._logs.items()]
        body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
        head = (
            "POST /api/v1/submissions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n"
            f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def _part(field_name: str, file: str, content: bytes) -> bytes:
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field_name}"; filename="{file}"'
        "\r\nContent-Type: application/octet-stream\r\n\r\n"
    )
    return head.encode() + content + b"\r\n"


if __name__ == "__main__":
    main()
