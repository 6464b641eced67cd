"""Measure how soon a free worker is at work again, and whether dispatch keeps the fair order.

`python -m perf.dispatch [--queued 10000] [--seconds 45] [--poll]` starts PostgreSQL, Valkey, a
server and two workers whose training trains nothing, queues verifications of 50 submitters of whom
three are greedy, and measures over the attempts that start:

* the time from a worker free (its report answered) to its next training process started;
* how far each started attempt was from being next in fair order;
* the processor time of server and worker while nothing is to be done.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import psutil
from sqlalchemy import func, insert, select, update

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.run import Ledger
from perf.dispatch_worker import CURVE
from perf.harness import DIGITS, Bars, percentiles
from perf.servers import (
    PYTHON,
    Server,
    claim_of,
    cpu_seconds,
    environment_of,
    make_tokens,
    running_database,
    running_server,
)
from server.base.database import Database, utc_now
from server.base.models import Attempt, Base, JobTraining, RunRow, Submission, User, Verification
from server.commands.services import broker_executable
from server.verifications.choose import NO_TURNS, anything_to_send, fair_order, take_due
from tests.support.processes import free_port, stop, wait_for
from tests.support.run_logs import STARTED_AT_MS, make_run_log

WORKERS = ("walter-1", "walter-2")
FREE_TO_CHILD_BAR_SECONDS = {"p50": 0.3, "p99": 1.0}
IDLE_BAR_PERCENT = 2.0
ROUNDS = 20
ORDER_BAR = len(WORKERS)
# The worker is the organiser's own: nobody has to train its runs again.
PEOPLE = {"ada": "submitter", "olivia": "organiser", "will": "worker"}
SUBMITTERS, GREEDY, GREEDY_SHARE = 50, 3, 0.75
ORGANISERS_EVERY = 500
BARS = Bars("dispatch")


@dataclass
class Installation:
    """A server that answers, its database and broker, and workers that are started later."""

    folder: Path
    server: Server
    database: Database
    environment: dict[str, str]
    tokens: dict[str, str]
    options: tuple[str, ...] = ()
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start_worker(self, name: str) -> None:
        """Start a worker that says hello under this name, and confirm it."""
        own = {
            "FINISHLINE_SERVER_URL": self.server.url,
            "FINISHLINE_WORKER_TOKEN": self.tokens["will"],
            "FINISHLINE_WORKER_NAME": name,
            "FINISHLINE_HARDWARE_CLASS": "cpu-perf",
            "FINISHLINE_MEASURE": "off",
            "FINISHLINE_PERF_NOTES": str(self.folder / f"{name}.notes"),
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [*PYTHON, "perf.dispatch_worker", *self.options]
            environment = self.environment | own
            self.workers.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        address = f"{self.server.url}/api/v1/workers/{name}"
        wait_for(lambda: httpx2.get(address).is_success, seconds=20, what=f"hello of {name}")
        # The server confirms the second by itself: it is another of one owner on the same machine.
        if httpx2.get(address).json()["worker"]["confirmed_at"] is None:
            self.post(f"/workers/{name}/confirm", by="olivia", json={})

    def post(self, path: str, *, by: str, **request: Any) -> Any:
        """The JSON of a request of somebody."""
        headers = {"Authorization": f"Bearer {self.tokens[by]}"}
        address = f"{self.server.url}/api/v1{path}"
        answer = httpx2.post(address, headers=headers, timeout=60, **request)
        if not answer.is_success:
            raise SystemExit(f"dispatch: {path}: {answer.text}")
        return answer.json()

    def count(self, state: str) -> int:
        """Number of attempts in a state."""
        with self.database.read() as session:
            query = select(func.count()).select_from(Attempt).where(Attempt.state == state)
            return session.scalar(query) or 0


@contextlib.contextmanager
def installed(
    folder: Path, *, benchmarks_dir: Path, options: tuple[str, ...] = ()
) -> Iterator[Installation]:
    """An installation; everything of it ends with the block."""
    with running_database("postgresql", folder) as url, running_redis(folder) as broker:
        settings = {
            "FINISHLINE_BROKER_URL": broker,
            "FINISHLINE_BENCHMARKS_DIR": str(benchmarks_dir),
        }
        environment = environment_of(url, folder, **settings)
        tokens = make_tokens(url, PEOPLE)
        with running_server(environment) as server:
            made = Installation(folder, server, Database(url), environment, tokens, options)
            try:
                yield made
            finally:
                for worker in made.workers:
                    stop(worker)
                made.database.close()


@contextlib.contextmanager
def running_redis(folder: Path) -> Iterator[str]:
    """The address of a broker that keeps nothing."""
    port = free_port()
    options = ("--bind", "127.0.0.1", "--save", "", "--dir", str(folder))
    command = [broker_executable(), "--port", str(port), *options]
    broker = subprocess.Popen(command, env=os.environ, stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        stop(broker)


def define(text: str) -> str:
    """The digits benchmark as one that trains nothing and verifies every submission by itself."""
    text = text.partition("\n# The calibration")[0]
    for there, here in (
        ('id = "digits"', 'id = "nothing"'),
        ('reference = "digits"', 'reference = "nothing"'),
        ("automatic = false", "automatic = true"),
        ("min_runs = 3", "min_runs = 1"),
        ("max_runs = 3", "max_runs = 1"),
    ):
        if there not in text:
            raise SystemExit(f"benchmarks/digits.toml has no {there!r} any more")
        text = text.replace(there, here)
    before, _, after = text.partition('sha256 = "')
    return f'{before}sha256 = "nothing"{after.partition(chr(34))[2]}'


def submit_one(installation: Installation, benchmark: Benchmark) -> str:
    """An honest submission; the id of its verification, which waits."""
    claim = claim_of(3, benchmark=benchmark.benchmark_id, model="nothing")
    parts: list[Any] = [("submission", ("submission.json", json.dumps(claim).encode()))]
    for seed, name in enumerate(claim["runs"]):

        def train_seconds(epoch: int, seed: int = seed) -> float:
            return epoch * (5.0 + seed / 7)

        log = make_run_log(
            benchmark, CURVE, train_seconds, name=name, seed=seed, prepared=Ledger(init=1.0),
            eval_seconds=0.01, started_at_ms=STARTED_AT_MS + seed,
        )  # fmt: skip
        parts.append(("logs", (name, log)))
    view = installation.post("/submissions", by="ada", files=parts)
    return str(view["verifications"][0]["id"])


def queue_copies(database: Database, verification_id: str, count: int) -> None:
    """Copy a verification that waits, its submission and its attempt."""
    with database.write() as session:
        names = [f"submitter-{number}" for number in range(SUBMITTERS)]
        session.execute(insert(User), [{"name": n, "created_at": utc_now()} for n in names])
        users = {row.name: row.id for row in session.execute(select(User.name, User.id))}

        def rows_of(table: type[Base], condition: Any) -> list[dict[str, Any]]:
            found = session.execute(select(*table.__table__.columns).where(condition))
            return [dict(row._mapping) for row in found]

        (verification,) = rows_of(Verification, Verification.id == verification_id)
        (attempt,) = rows_of(Attempt, Attempt.verification_id == verification_id)
        submission_id = verification["submission_id"]
        (submission,) = rows_of(Submission, Submission.id == submission_id)
        runs = rows_of(RunRow, RunRow.submission_id == submission_id)
        trainings = rows_of(JobTraining, JobTraining.verification_id == verification_id)
        copies: dict[type[Base], list[dict[str, Any]]] = {
            table: [] for table in (Submission, Verification, Attempt, RunRow, JobTraining)
        }
        for number in range(count):
            user = users[names[whose(number, count)]]
            by_organiser = number % ORGANISERS_EVERY == 0
            asked_at = verification["created_at"] + timedelta(milliseconds=1 + number)
            s, v, a = (f"{kind}{number:05d}" for kind in "sva")
            copies[Submission].append(
                submission | {"id": s, "user_id": user, "idempotency_key": None}
            )
            requested = {"requested_by": users["olivia"] if by_organiser else user}
            own = {"id": v, "submission_id": s, "created_at": asked_at}
            copies[Verification].append(verification | own | requested)
            whom = {"submitter_id": user, "by_organiser": by_organiser, "asked_at": asked_at}
            copies[Attempt].append(attempt | {"id": a, "verification_id": v} | whom)
            copies[JobTraining] += [each | {"verification_id": v} for each in trainings]
            for run in runs:
                # As if each had trained: runs alike are looked at, for copies of one another.
                own = {
                    "submission_id": s,
                    "log_sha256": f"{number:032d}{run['log_sha256'][:32]}",
                    "best_quality": run["best_quality"] - number / 1e7,
                }
                copies[RunRow].append({k: x for k, x in run.items() if k != "id"} | own)
        for table, rows in copies.items():
            session.execute(insert(table), rows)


def whose(number: int, count: int) -> int:
    """The submitter (from 0) of an attempt: three quarters are of the greedy, who came first."""
    if number < int(count * GREEDY_SHARE):
        return number % GREEDY
    return GREEDY + number % (SUBMITTERS - GREEDY)


def main() -> int:
    """Measure and print; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--poll", action="store_true", help="workers without a broker")
    wanted = parser.parse_args()
    options = ("--pull",) if wanted.poll else ()
    with tempfile.TemporaryDirectory(prefix="finishline-perf-") as name:
        folder = Path(name)
        (folder / "benchmarks").mkdir()
        definition = folder / "benchmarks" / "nothing.toml"
        definition.write_text(define(DIGITS.read_text()))
        with installed(folder, benchmarks_dir=definition.parent, options=options) as installation:
            first = submit_one(installation, load_benchmark(definition))
            queue_copies(installation.database, first, wanted.queued)
            BARS.say(f"{wanted.queued + 1:,} verifications of {SUBMITTERS + 1} submitters wait")
            measure_starts(installation, wanted.seconds)
            measure_idle(installation, wanted.idle_seconds)
    return BARS.exit_code


def measure_starts(installation: Installation, seconds: float) -> None:
    """Let the workers work for a while, and compare latency and order with their bars."""
    server = installation.server.process
    cpu_before, began = cpu_seconds(server), time.monotonic()
    for name in WORKERS:
        installation.start_worker(name)
    wait_for(
        lambda: installation.count("done") >= len(WORKERS), seconds=60, what="the first verdicts"
    )
    time.sleep(seconds)
    spent = time.monotonic() - began
    cpu = 100 * (cpu_seconds(server) - cpu_before) / spent
    done = installation.count("done")
    BARS.say(f"{done} verified in {spent:.0f} s by {len(WORKERS)} workers; {cpu:.0f} % of a core")
    report_round(installation)
    installation.post("/queue/pause", by="olivia", json={"reason": "measured"})
    wait_for(lambda: installation.count("running") == 0, seconds=60, what="the last to end")
    delays = [d for name in WORKERS for d in free_to_child(installation.folder, name)]
    BARS.say(f"free to child started, {len(delays)} times")
    for (name, bar), found in zip(
        FREE_TO_CHILD_BAR_SECONDS.items(), percentiles(delays), strict=True
    ):
        BARS.hold(f"free to child started, {name}", found, " s", at_most=bar)
    check_order(installation)


def free_to_child(folder: Path, name: str) -> list[float]:
    """Seconds from each time a worker was free to its next child."""
    notes = [json.loads(line) for line in (folder / f"{name}.notes").read_text().splitlines()]
    return [
        after["at"] - before["at"]
        for before, after in itertools.pairwise(notes)
        if (before["what"], after["what"]) == ("free", "child")
    ]


def check_order(installation: Installation) -> None:
    """Compare the order in which attempts started with the fair one."""
    facts = ("submitter_id", "by_organiser", "asked_at", "created_at", "started_at")
    columns = [getattr(Attempt, name) for name in facts]
    with installation.database.read() as session:
        attempts = session.execute(select(Attempt.id, *columns).where(~Attempt.is_apart)).all()
    started = sum(each.started_at is not None for each in attempts)
    off = furthest_from_next(attempts)
    BARS.hold(f"furthest from being next, of {started}", off, at_most=ORDER_BAR)


def furthest_from_next(attempts: Sequence[Any]) -> int:
    """How many others were before an attempt when it started, at most. 0: each was the next.

    An attempt waits from the moment at which it was queued. For example, a retry of a training
    that other programs disturbed waits from then on, and takes its submitter's next turn.
    """
    started = sorted(
        (each for each in attempts if each.started_at is not None),
        key=lambda each: each.started_at,
    )
    waiting = {each.id: each for each in attempts}
    turns, furthest = NO_TURNS, 0
    for one in started:
        line = fair_order(
            (each for each in waiting.values() if each.created_at <= one.started_at), turns
        )
        furthest = max(furthest, line.index(waiting.pop(one.id)))
        turns = turns.after(one, one.started_at)
    return furthest


def report_round(installation: Installation) -> None:
    """Print the cost of one round of the dispatch loop for this process, with all queued."""
    looks, choices = [], []
    for _ in range(ROUNDS):
        with installation.database.read() as session:
            before = time.thread_time()
            anything_to_send(session)
            looks.append(time.thread_time() - before)
            before = time.thread_time()
            take_due(session)
            choices.append(time.thread_time() - before)
            session.rollback()
    look, choose = (1000 * statistics.median(figures) for figures in (looks, choices))
    BARS.say(f"a round: {look:.1f} ms of processor time to look, {choose:.1f} ms to choose")


def measure_idle(installation: Installation, seconds: float) -> None:
    """Compare the processor time of server and one worker without work with its bar."""
    first_worker = psutil.Process(installation.workers[0].pid)
    processes = [installation.server.process, first_worker]
    paused = idle_percent(processes, seconds / 2)
    BARS.hold("idle, everything queued and paused", paused, " %", at_most=IDLE_BAR_PERCENT)
    with installation.database.write() as session:
        for table in (Attempt, Verification):
            session.execute(update(table).where(table.state == "queued").values(state="cancelled"))
    installation.post("/queue/resume", by="olivia", json={})
    idle = idle_percent(processes, seconds)
    BARS.hold("idle, nothing queued", idle, " % of a core", at_most=IDLE_BAR_PERCENT)


def idle_percent(processes: Sequence[psutil.Process], seconds: float) -> float:
    """Percent of a core that processes take together over a while."""
    time.sleep(2.0)  # Requests sent just before are done by then.
    before, began = cpu_seconds(*processes), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(*processes) - before) / (time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
