"""Databases and server processes to measure, and the processor time they take."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psutil

from perf.harness import CHECKOUT
from server.base.database import Database
from server.base.schema import migrate
from server.people.accounts import create_token
from tests.support.postgresql import running_postgresql
from tests.support.processes import free_port, stop, wait_for

PYTHON = (sys.executable, "-m")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def cpu_seconds(*processes: psutil.Process) -> float:
    """Processor seconds that processes have used so far."""
    times = [process.cpu_times() for process in processes]
    return float(sum(each.user + each.system for each in times))


@contextlib.contextmanager
def running_database(kind: str, folder: Path) -> Iterator[str]:
    """The address of an empty, migrated database: sqlite or postgresql."""
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{folder / 'finishline.db'}"
        if kind == "postgresql":
            url = stack.enter_context(running_postgresql())
        database = Database(url)
        migrate(database)
        database.close()
        yield url


def make_tokens(url: str, people: Mapping[str, str]) -> dict[str, str]:
    """A token for each name, with its role."""
    database = Database(url)
    with database.write() as session:
        made = {
            name: create_token(session, user_name=name, role=role, expires_in=None).secret
            for name, role in people.items()
        }
    database.close()
    return made


def environment_of(url: str, folder: Path, **settings: str) -> dict[str, str]:
    """The environment of a server on a database, with its files in a folder."""
    return os.environ | {
        "FINISHLINE_DATABASE_URL": url,
        "FINISHLINE_ARTIFACTS_DIR": str(folder / "artifacts"),
        "FINISHLINE_LOG_LEVEL": "warning",
        "FINISHLINE_QUOTA_SUBMISSIONS_PER_DAY": "unlimited",
        "FINISHLINE_RATE_LIMITS": "false",
        "PYTHONPATH": str(CHECKOUT),
        **settings,
    }


def claim_of(runs: int, *, benchmark: str = "digits", model: str = "reference") -> dict[str, Any]:
    """A claim of so many runs on a machine with a price."""
    return {
        "benchmark": benchmark,
        "division": "closed",
        "model": model,
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


@dataclass(frozen=True)
class Server:
    """A server process that answers."""

    port: int
    process: psutil.Process

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def running_server(
    environment: Mapping[str, str], *app: str, pause: float = 0.05, log: Path | None = None
) -> Iterator[Server]:
    """A process of uvicorn that answers /healthz; it serves `app`, with options, or the server."""
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
        wait_for(answers, seconds=60, what=f"the server at {server.url}", pause=pause)
        yield server
    finally:
        stop(process)


@dataclass
class Load:
    """A request that is sent again as soon as it is answered, and the seconds of each answer."""

    request: bytes
    status: bytes
    until: float = 0.0
    seconds: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """Sends a request, counts the answer's bytes, sends the next."""

    def __init__(self, load: Load, ended: asyncio.Future[None]) -> None:
        self._load = load
        self._ended = ended
        self._received = bytearray()
        self._wanted = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        """Count until the answer is whole."""
        self._received += data
        if self._wanted < 0:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end])
            assert head.startswith(b"HTTP/1.1 " + self._load.status), head
            length = None if self._load.status == b"304" else LENGTH.search(head)
            self._wanted = end + 4 + (int(length[1]) if length else 0)
        if len(self._received) < self._wanted:
            return
        now = time.perf_counter()
        self._load.seconds.append(now - self._sent_at)
        self._received.clear()
        self._wanted = -1
        if now < self._load.until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._ended.set_result(None)


async def put_load(port: int, load: Load, *, connections: int) -> None:
    """Ask over so many connections until the load ends, each once at least."""
    loop = asyncio.get_running_loop()
    ended = [loop.create_future() for _ in range(connections)]
    for one in ended:
        await loop.create_connection(partial(Connection, load, one), "127.0.0.1", port)
    await asyncio.gather(*ended)


async def ask_over(connection: Streams, request: bytes) -> tuple[bytes, bytes]:
    """Send a request; the head of the response in lower case, and its body."""
    reader, writer = connection
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    found = LENGTH.search(head)
    return head, await reader.readexactly(int(found[1]) if found else 0)
