"""Submissions as requests for perf/submission_writes.py, and people who send them."""

import asyncio
import itertools
import json
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from finishline.rules.benchmarks.benchmark import load_benchmark
from perf.harness import DIGITS
from tests.support.run_logs import make_run_log

RUNS, EVALUATIONS = 5, 100
BOUNDARY = "finishline-perf-boundary"
TIME_AND_EPOCH = re.compile(rb'"time_ms":(?P<time>[\d.]+)[^\n]*"epoch_num":(?P<epoch>\d+)')
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


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


@dataclass
class Answered:
    """Outcomes of the requests: seconds of each, and responses other than 201."""

    seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


async def send_for(
    ports: Sequence[int], requests: Requests, *, tokens: Sequence[str], seconds: float
) -> Answered:
    """Submit for so long, everybody over a connection and as soon as they are answered."""
    answered = Answered()
    until = time.perf_counter() + seconds

    async def client(port: int, token: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (started := time.perf_counter()) < until:
            writer.write(requests.make(token))
            head = await reader.readuntil(b"\r\n\r\n")
            found = LENGTH.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
            answered.seconds.append(time.perf_counter() - started)
            if not head.startswith(b"HTTP/1.1 201"):
                answered.faults.append((head + body).decode()[:500])
        writer.close()

    each = (client(ports[n % len(ports)], token) for n, token in enumerate(tokens))
    await asyncio.gather(*each)
    return answered
