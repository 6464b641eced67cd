"""The harness of the programs here: databases, servers, turns, percentiles, and bars."""

import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

from server.base.database import Database
from server.base.schema import migrate
from server.people.accounts import create_token
from tests.support.postgresql import running_postgresql
from tests.support.processes import free_port, stop, wait_for

CHECKOUT = Path(__file__).resolve().parents[1]
DIGITS = CHECKOUT / "benchmarks" / "digits.toml"
PYTHON = (sys.executable, "-m")
QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@dataclass
class Bars:
    """Prints the figures of a program and remembers which missed their bar."""

    program: str
    missed: list[str] = field(default_factory=list)

    def say(self, words: str) -> None:
        """Print a line."""
        print(f"{self.program}: {words}", flush=True)

    def hold(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> bool:
        """Print a figure beside its bar; whether it meets it."""
        met = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
        bars = [f"at most {at_most:g}"] if at_most is not None else []
        bars += [f"at least {at_least:g}"] if at_least is not None else []
        self.say(f"{name} {value:.4g}{unit} ({', '.join(bars)}){'' if met else ' MISSED'}")
        if not met:
            self.missed.append(name)
        return met

    @property
    def exit_code(self) -> int:
        """1 if a bar was missed."""
        return int(bool(self.missed))


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    for cells in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def in_turn(
    cases: Mapping[str, Callable[[], float]], rounds: int, *, warm: bool = False
) -> dict[str, list[float]]:
    """Measure each case once a round, every other round backwards; `warm` drops one round more.

    The machine's other work then weighs on all of them alike.
    """
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + warm):
        for name in list(cases)[:: 1 if number % 2 == 0 else -1]:
            value = cases[name]()
            if number >= warm:
                found[name].append(value)
    return found


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    if len(values) < 2:
        return values[0], values[0]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[98]


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
    environment: Mapping[str, str], *app: str, pause: float = 0.05
) -> Iterator[Server]:
    """A process of uvicorn that answers /healthz; it serves `app`, with options, or the server."""
    port = free_port()
    served = app or ("server.app:app",)
    command = [*PYTHON, "uvicorn", *served, "--no-access-log", "--port", str(port)]
    process = subprocess.Popen(command, env=dict(environment), cwd=CHECKOUT, **QUIET)
    server = Server(port, psutil.Process(process.pid))
    try:
        wait_until_ready(server, process, pause=pause)
        yield server
    finally:
        stop(process)


def wait_until_ready(
    server: Server, process: "subprocess.Popen[bytes]", *, pause: float = 0.05
) -> None:
    """Wait at most a minute for the first answer."""

    def answers() -> bool:
        if process.poll() is not None:
            raise SystemExit(f"the server at {server.url} stopped by itself")
        return httpx2.get(f"{server.url}/healthz", trust_env=False).status_code == 200

    wait_for(answers, seconds=60, what=f"the server at {server.url}", pause=pause)


def archived_packages(given: Sequence[Path] = ()) -> list[Path]:
    """The MLPerf packages to measure with; none where there is no folder of archives."""
    archives = Path(os.environ.get("FINISHLINE_ARCHIVES", CHECKOUT.parent / "shared" / "archives"))
    packages = list(given) or [archives / "mlperf" / "v5.1"]
    return packages if all(package.is_dir() for package in packages) else []


def seconds_of(work: Callable[[], object]) -> float:
    """Seconds that a piece of work takes by the clock."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def processor_seconds_of(work: Callable[[], object]) -> float:
    """Processor seconds that a piece of work takes in this process."""
    began = time.process_time()
    work()
    return time.process_time() - began
