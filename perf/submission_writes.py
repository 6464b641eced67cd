"""Submissions a second through the API beside bare inserts of the same rows.

`python perf/submission_writes.py` measures SQLite, with one server process as `finishline up` has
it, and PostgreSQL with two. A submission has 5 run logs of 100 evaluations as the digits reference
writes them, 51 kB each, and 8 users send one after the other. Bare inserts are SQLAlchemy Core's
statements with the very rows that the server stored (one submission, five runs with their curves,
the board's version and what changed in it), one transaction for each, from as many clients in as
many processes, with the same settings of the same database (SQLite: WAL, synchronous=FULL). They
take turns with the server; the median of the ratios counts. Exit code 1 where it is below 0.60.

What the server does beside: read 255 kB of request, check and score 1,540 lines of logs, write 6
files to the disk. Last comes, for comparison alone, what bare inserts reach if every evaluation is
a row: 506 rows for a submission.

On ext4 a new file is ten times as dear, 0.2 ms and more, where many were deleted in the minutes
before, as tests do: it passes over their places. TMPDIR names another file system.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil

from perf.submission_load import (
    EVALUATION_ROWS,
    Answered,
    BareLoad,
    Requests,
    insert_for,
    read_rows,
    send_for,
)
from server.accounts.service import create_token
from server.database import Database
from tests.support.postgresql import running_postgresql
from tests.support.processes import free_port

WANTED_RATIO = 0.60
CLIENTS = 8
PROCESSES = {"sqlite": 1, "postgresql": 2}


def main() -> int:
    """Measure both databases and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(PROCESSES))
    arguments = parser.parse_args()
    names = [arguments.only] if arguments.only else list(PROCESSES)
    ratios = [measure(name, seconds=arguments.seconds, rounds=arguments.rounds) for name in names]
    return int(min(ratios) < WANTED_RATIO)


def measure(name: str, *, seconds: float, rounds: int) -> float:
    """The median ratio of some rounds on one database."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_database(name, Path(folder)) as url,
        running_servers(url, Path(folder), PROCESSES[name]) as servers,
    ):
        servers.send(seconds=1.0)  # warms it up
        database = Database(url)
        rows = read_rows(database)
        EVALUATION_ROWS.create(database.engine)
        database.close()
        load = BareLoad(url, rows, CLIENTS // PROCESSES[name], seconds, evaluations=False)
        ratios = [round_of(name, servers, load) for _ in range(rounds)]
        apart = insert_bare(BareLoad(url, rows, load.clients, seconds, evaluations=True), name)
    ratio = statistics.median(ratios)
    print(f"submission writes: {name}: bare inserts with evaluations as rows {apart:.0f}/s")
    print(f"submission writes: {name}: ratio {ratio:.2f} ({WANTED_RATIO:.2f} is wanted)")
    return ratio


def round_of(name: str, servers: "Servers", load: BareLoad) -> float:
    """The ratio of one turn of bare inserts and one of the server."""
    bare = insert_bare(load, name)
    before, started = servers.cpu_seconds(), time.perf_counter()
    answered = servers.send(seconds=load.seconds)
    took = sorted(answered.seconds)
    rate = len(took) / (time.perf_counter() - started)
    cpu = (servers.cpu_seconds() - before) / len(took)
    print(
        f"submission writes: {name}: server {rate:.0f}/s (p50 {took[len(took) // 2] * 1e3:.0f} ms, "
        f"p99 {took[int(0.99 * len(took))] * 1e3:.0f} ms, CPU {cpu * 1e3:.1f} ms each), "
        f"bare inserts {bare:.0f}/s: {rate / bare:.2f}",
        flush=True,
    )
    return rate / bare


def insert_bare(load: BareLoad, name: str) -> float:
    """Bare inserts a second, of as many processes and clients as the server has."""
    context = multiprocessing.get_context("spawn")
    counts = context.SimpleQueue()
    inserters = [
        context.Process(target=insert_for, args=(load, counts.put)) for _ in range(PROCESSES[name])
    ]
    for each in inserters:
        each.start()
    for each in inserters:
        each.join()
    return float(sum(counts.get() for _ in inserters) / load.seconds)


@contextlib.contextmanager
def running_database(name: str, folder: Path) -> Iterator[str]:
    """The address of an empty database."""
    if name == "sqlite":
        yield f"sqlite:///{folder / 'finishline.db'}"
        return
    with running_postgresql() as url:
        yield url


class Servers:
    """Server processes and somebody who submits to all of them."""

    def __init__(
        self, ports: list[int], processes: list[psutil.Process], tokens: list[str]
    ) -> None:
        self._ports, self._processes, self._tokens = ports, processes, tokens
        self._requests = Requests()

    def send(self, *, seconds: float) -> Answered:
        """Submit for so long. Stops the measurement if one is not taken."""
        load = send_for(self._ports, self._requests, tokens=self._tokens, seconds=seconds)
        answered = asyncio.run(load)
        if answered.faults:
            raise SystemExit(f"submission writes: {answered.faults[0]}")
        return answered

    def cpu_seconds(self) -> float:
        """CPU seconds the servers have used so far."""
        times = [process.cpu_times() for process in self._processes]
        return float(sum(each.user + each.system for each in times))


@contextlib.contextmanager
def running_servers(url: str, folder: Path, processes: int) -> Iterator[Servers]:
    """So many server processes on an empty database."""
    environment = os.environ | {
        "FINISHLINE_DATABASE_URL": url,
        "FINISHLINE_ARTIFACTS_DIR": str(folder / "artifacts"),
        "FINISHLINE_LOG_LEVEL": "warning",
        "FINISHLINE_RATE_LIMITS": "false",
        "FINISHLINE_QUOTA_SUBMISSIONS_PER_DAY": "unlimited",
    }
    migrate = [sys.executable, "-m", "server.admin", "migrate"]
    subprocess.run(migrate, env=environment, check=True, capture_output=True)
    tokens = make_tokens(url)
    ports = [free_port() for _ in range(processes)]
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--no-access-log", "--port"]
    servers = [
        subprocess.Popen([*command, str(port)], env=environment, stderr=subprocess.DEVNULL)
        for port in ports
    ]
    try:
        for port in ports:
            wait_until_ready(port)
        yield Servers(ports, [psutil.Process(server.pid) for server in servers], tokens)
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(timeout=20)


def make_tokens(url: str) -> list[str]:
    """A token for each client; submissions of one user wait for each other."""
    database = Database(url)
    with database.write() as session:
        made = [
            create_token(session, user_name=f"perf{n}", role="submitter", expires_in=None)
            for n in range(CLIENTS)
        ]
    database.close()
    return [each.secret for each in made]


def wait_until_ready(port: int) -> None:
    """Return once a server answers."""
    for _ in range(1200):
        with contextlib.suppress(httpx2.TransportError):
            httpx2.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)
            return
        time.sleep(0.05)
    raise SystemExit("submission writes: the server does not answer")


if __name__ == "__main__":
    sys.exit(main())
