"""Databases, server processes, accounts, submissions and loads for the programs."""

import asyncio
import contextlib
import itertools
import json
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

from finishline.rules.benchmarks.benchmark import load_benchmark
from perf.harness import CHECKOUT, DIGITS
from server.base.database import Database
from server.base.schema import migrate
from server.people.accounts import create_token
from tests.support.postgresql import running_postgresql
from tests.support.processes import free_port, stop, wait_for
from tests.support.run_logs import make_run_log

PYTHON = (sys.executable, "-m")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
NO_BROKER = {"FINISHLINE_BROKER_URL": "redis://127.0.0.1:1/0"}  # Switched off.
BOUNDARY = "finishline-perf-boundary"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.contextmanager
def running_database(kind: str) -> Iterator[tuple[str, Path]]:
    """Return the address of an empty, migrated database, sqlite or postgresql, and a folder."""
    with contextlib.ExitStack() as stack:
        prefix = "finishline-perf-"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        url = f"sqlite:///{folder / 'finishline.db'}"
        if kind == "postgresql":
            url = stack.enter_context(running_postgresql())
        database = Database(url)
        migrate(database)
        database.close()
        yield url, folder


def make_tokens(url: str, people: Mapping[str, str]) -> dict[str, str]:
    """Make a token for each name, with its role."""
    database = Database(url)
    with database.write() as session:
        made = {
            name: create_token(session, user_name=name, role=role, expires_in=None).secret
            for name, role in people.items()
        }
    database.close()
    return made


def environment_of(url: str, folder: Path, **settings: str) -> dict[str, str]:
    """Return the environment of a server on a database, with its files in a folder."""
    return os.environ | {
        "FINISHLINE_DATABASE_URL": url,
        "FINISHLINE_ARTIFACTS_DIR": str(folder / "artifacts"),
        "FINISHLINE_LOG_LEVEL": "warning",
        "FINISHLINE_QUOTA_SUBMISSIONS_PER_DAY": "unlimited",
        "FINISHLINE_RATE_LIMITS": "false",
        "PYTHONPATH": str(CHECKOUT),
        **settings,
    }


@dataclass(frozen=True)
class Server:
    """A running server process."""

    port: int
    process: psutil.Process

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        """Return the JSON of a document."""
        return httpx2.get(self.url + path, trust_env=False, timeout=60).json()


def cpu_seconds(*of: Server | psutil.Process) -> float:
    """Return the processor seconds that processes have used so far."""
    processes = (each.process if isinstance(each, Server) else each for each in of)
    times = [process.cpu_times() for process in processes]
    return float(sum(each.user + each.system for each in times))


@contextlib.contextmanager
def running_server(
    environment: Mapping[str, str], *app: str, pause: float = 0.05, log: Path | None = None
) -> Iterator[Server]:
    """Start uvicorn until /healthz answers. It serves `app` with options, or the server."""
    errors = subprocess.DEVNULL if log is None else log.open("wb")
    port = free_port()
    served = app or ("server.app:app",)
    command = [*PYTHON, "uvicorn", *served, "--no-access-log", "--port", str(port)]
    process = subprocess.Popen(
        command, env=dict(environment), cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=errors
    )
    server = Server(port, psutil.Process(process.pid))

    def answers() -> bool:
        if process.poll() is not None:
            raise SystemExit(f"the server at {server.url} stopped by itself")
        return httpx2.get(f"{server.url}/healthz", trust_env=False).status_code == 200

    try:
        wait_for(answers, seconds=180, what=f"the server at {server.url}", pause=pause)
        yield server
    finally:
        stop(process)


@dataclass
class Answers:
    """Statuses and seconds of answers. Faults are errors other than 429 or 503 with Retry-After."""

    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def other_than(self, *expected: int) -> int:
        """Count the answers with other statuses."""
        found = [n for status, n in self.statuses.items() if status not in expected]
        return sum(found) + self.faults["no answer"]

    def note(self, status: int, head: bytes) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        is_refusal = status in (429, 503) and b"\nretry-after:" in head
        if not (200 <= status < 400 or is_refusal):
            self.faults[f"status {status}"] += 1


async def ask(connection: Streams, request: bytes) -> tuple[int, bytes, bytes]:
    """Send a request. The status, the head in lower case, and the body."""
    reader, writer = connection
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status, length = int(head[9:12]), LENGTH.search(head)
    size = int(length[1]) if length and status != 304 else 0
    return status, head, await reader.readexactly(size)


async def keep_asking(
    server: Server,
    requests: Iterable[bytes],
    answers: Answers,
    *,
    until: float = float("inf"),
    pause: float = 0.0,
) -> None:
    """Ask over one connection, again as soon as it is answered, up to a moment or the last."""
    connection: Streams | None = None
    for request in requests:
        began = time.perf_counter()
        try:
            connection = connection or await asyncio.open_connection("127.0.0.1", server.port)
            status, head, _ = await ask(connection, request)
            answers.note(status, head)
        except (OSError, EOFError):
            head = b"\nconnection: close"
            answers.faults["no answer"] += 1
        finally:  # A cancelled request has waited at least this long.
            answers.seconds.append(time.perf_counter() - began)
        if connection and b"\nconnection: close" in head:
            connection[1].close()
            connection = None
        if time.perf_counter() >= until:
            break
        await asyncio.sleep(pause)
    if connection:
        connection[1].close()


def load(
    servers: Sequence[Server],
    clients: Sequence[Iterable[bytes]],
    seconds: float = float("inf"),
    into: Answers | None = None,
) -> Answers:
    """Let each client send its requests over its own connection, to the servers in turn."""
    answers = into or Answers()

    async def ask_all() -> None:
        until = time.perf_counter() + seconds
        places = zip(itertools.cycle(servers), clients, strict=False)
        await asyncio.gather(*(keep_asking(*each, answers, until=until) for each in places))

    asyncio.run(ask_all())
    return answers


def get_request(path: str, **headers: str) -> bytes:
    """Write a GET as bytes."""
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def post_request(
    path: str, token: str, body: bytes, *, content: str = "application/json", **headers: str
) -> bytes:
    """Write a POST as bytes."""
    own = {"Authorization": f"Bearer {token}", "Content-Type": content, **headers}
    head = get_request(path, **own, Content_Length=str(len(body)))
    return head.replace(b"GET", b"POST", 1) + body


def form_request(
    path: str, token: str, files: Sequence[tuple[str, str, bytes]], **headers: str
) -> bytes:
    """Write a POST of a form with files: of each its field, its name and its content."""
    body = b""
    for name, file, content in files:
        body += (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"'
            "\r\nContent-Type: application/octet-stream\r\n\r\n"
        ).encode()
        body += content + b"\r\n"
    body += f"--{BOUNDARY}--\r\n".encode()
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return post_request(path, token, body, content=kind, **headers)


def claim_of(runs: int) -> dict[str, Any]:
    """Make a claim of so many runs on a machine with a price."""
    return {
        "benchmark": "digits",
        "division": "closed",
        "model": "reference",
        "framework": "torch 2.13.0",
        "system": {
            "name": "perf",
            "hardware_class": "cpu-perf",
            "processor": "any",
            "processor_count": 2,
            "memory_gib": 24,
            "price_usd_per_hour": 0.1,
            "price_source": "perf",
        },
        "hyperparameters": {"batch_size": 64},
        "runs": [f"run_{index}.log" for index in range(runs)],
    }


class Submissions:
    """Makes requests with submissions of digits. Each has new trainings, so every log is new.

    A submission has 5 run logs of 100 evaluations as the digits reference writes them, 51 kB each.
    The digits of a log's number delay four of its evaluations by as many milliseconds.
    """

    RUNS, BASE = 5, 40
    QUALITIES = (*(round(15 + 0.8 * epoch, 4) for epoch in range(1, 100)), 98.0)
    LATE = re.compile(rb'(?<="time_ms":)([\d.]+)([^\n]*"epoch_num":)(20|40|60|80)(?=\D)')

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._logs = [self.LATE.split(self._make_log(index)) for index in range(self.RUNS)]

    def of(self, token: str, *, dry_run: bool = False, **headers: str) -> Iterator[bytes]:
        """Requests of whom a token belongs to."""
        path = "/api/v1/submissions" + ("?dry_run=true" if dry_run else "")
        for number in self._numbers:
            claim = claim_of(self.RUNS) | {"notes": f"training {number}"}
            files = [("submission", "submission.json", json.dumps(claim).encode())]
            for index, pieces in enumerate(self._logs):
                files.append(("logs", f"run_{index}.log", self._training(pieces, number)))
            key = secrets.token_hex(12)
            yield form_request(path, token, files, Idempotency_Key=key, **headers)

    def _training(self, pieces: list[bytes], number: int) -> bytes:
        whole = list(pieces)
        for at in range(1, len(whole), 4):  # A time, what follows it, and its epoch.
            place = int(whole[at + 2]) // 20 - 1
            digit = number // self.BASE**place % self.BASE
            whole[at] = str(float(whole[at]) + digit).encode()
        return b"".join(whole)

    def _make_log(self, index: int) -> bytes:
        def train_seconds(epoch: int) -> float:
            # All trainings differ in their times.
            return 0.11 * epoch + 0.0013 * (index + 1) * ((epoch * 7) % 5)

        name, seed = f"run_{index}.log", 100 + index
        benchmark = load_benchmark(DIGITS)
        return bytes(make_run_log(benchmark, self.QUALITIES, train_seconds, name=name, seed=seed))
