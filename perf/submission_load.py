"""Requests and bare inserts for perf/submission_writes.py: both write the same rows."""

import asyncio
import contextlib
import itertools
import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    Table,
    insert,
    select,
    update,
)

from finishline.rules.benchmarks.benchmark import load_benchmark
from server.database import Database
from server.models import Board, BoardChange, RunRow, Submission
from tests.support.run_logs import make_run_log

CHECKOUT = Path(__file__).resolve().parents[1]
RUNS, EVALUATIONS = 5, 100
BOUNDARY = "finishline-perf-boundary"
TIME_AND_EPOCH = re.compile(rb'"time_ms":(?P<time>[\d.]+)[^\n]*"epoch_num":(?P<epoch>\d+)')
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def make_logs() -> dict[str, bytes]:
    """The logs of five runs of digits with a hundred evaluations each, as a worker writes them."""
    return {f"run_{index}.log": _make_log(index) for index in range(RUNS)}


def _make_log(index: int) -> bytes:
    benchmark = load_benchmark(CHECKOUT / "benchmarks" / "digits.toml")
    qualities = [*(round(15 + 0.8 * epoch, 4) for epoch in range(1, EVALUATIONS)), 98.0]

    def train_seconds(epoch: int) -> float:
        # No two trainings agree in their times.
        return 0.11 * epoch + 0.0013 * (index + 1) * ((epoch * 7) % 5)

    return make_run_log(benchmark, qualities, train_seconds, name="run.log", seed=100 + index)


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
        parts = [_part("submission", "submission.json", json.dumps(CLAIM).encode())]
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
    """What became of the requests: seconds of each, and answers that were no 201."""

    seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


async def send_for(
    ports: list[int], requests: Requests, *, tokens: list[str], seconds: float
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


@dataclass(frozen=True)
class Rows:
    """One stored submission: its row and those of its runs."""

    submission: dict[str, Any]
    runs: list[dict[str, Any]]


def read_rows(database: Database) -> Rows:
    """The rows of a submission that the server stored."""
    with database.engine.connect() as connection:
        submission = connection.execute(select(Submission.__table__).limit(1)).mappings().one()
        of_it = RunRow.__table__.c.submission_id == submission["id"]
        runs = connection.execute(select(RunRow.__table__).where(of_it)).mappings().all()
    return Rows(
        submission=dict(submission),
        runs=[{name: value for name, value in run.items() if name != "id"} for run in runs],
    )


# What the server does not have: every evaluation a row. It shows what a curve in one JSON spares.
EVALUATION_ROWS = Table(
    "perf_evaluations",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("run_id", BigInteger),
    Column("epoch", Float),
    Column("seconds", Float),
    Column("quality", Float),
    Column("samples", BigInteger),
    Column("ledger", JSON),
)


def insert_rows(connection: Connection, rows: Rows, *, evaluations: bool) -> None:
    """The statements of one submission and nothing else; with `evaluations`, these as rows too."""
    own = secrets.token_hex(6)
    connection.execute(
        insert(Submission.__table__),  # type: ignore[arg-type]
        rows.submission | {"id": own, "idempotency_key": own},
    )
    runs = [run | {"submission_id": own, "log_sha256": own} for run in rows.runs]
    if evaluations:
        runs = [run | {"curve": []} for run in runs]
    connection.execute(insert(RunRow.__table__), runs)  # type: ignore[arg-type]
    if evaluations:
        names = [column.name for column in EVALUATION_ROWS.columns][2:]
        connection.execute(
            insert(EVALUATION_ROWS),
            [
                dict(zip(names, evaluation, strict=True), run_id=number)
                for number, run in enumerate(rows.runs)
                for evaluation in run["curve"]
            ],
        )
    benchmark_id = rows.submission["benchmark_id"]
    version = connection.execute(
        update(Board.__table__)  # type: ignore[arg-type]
        .where(Board.benchmark_id == benchmark_id)
        .values(version=Board.version + 1)
        .returning(Board.version)
    ).scalar_one()
    connection.execute(
        insert(BoardChange.__table__),  # type: ignore[arg-type]
        {"benchmark_id": benchmark_id, "version": version, "submission_id": own},
    )


@dataclass(frozen=True)
class BareLoad:
    """Bare inserts of one process: from so many threads, for so long."""

    url: str
    rows: Rows
    clients: int
    seconds: float
    evaluations: bool


def insert_for(load: BareLoad, counted: Callable[[int], None]) -> None:
    """Insert as a load says, a transaction for each submission; tells how many there were."""
    database = Database(load.url)
    writers = threading.Lock() if database.is_sqlite else contextlib.nullcontext()
    counts = [0] * load.clients
    until = time.perf_counter() + load.seconds

    def client(number: int) -> None:
        with database.engine.connect() as connection:
            connection.execution_options(finishline_write=True)
            while time.perf_counter() < until:
                with writers, connection.begin():
                    insert_rows(connection, load.rows, evaluations=load.evaluations)
                counts[number] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(load.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    database.close()
    counted(sum(counts))
