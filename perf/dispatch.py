"""How soon a free worker is at work again, and whether dispatch keeps the fair order.

PostgreSQL, a broker, a server and two workers whose training lasts a second get verifications of 50
submitters, of whom three are greedy. `--poll` starts workers without a broker. Measured are, over
the attempts that start:

* the time from a worker free (its report stored) to its lease of the next attempt;
* how far each started attempt was from being next in fair order;
* the processor time of server and worker while nothing is to be done.
"""

import contextlib
import itertools
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import func, insert, select, update

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from perf.harness import DIGITS, Bars, percentiles, run
from perf.servers import cpu_seconds
from server.base.database import Database, utc_now
from server.base.models import Attempt, Base, JobTraining, RunRow, Submission, User, Verification
from server.verifications.queue import NO_TURNS, fair_order
from tests.chaos.cluster import Cluster
from tests.chaos.stroll import WORKER as WORKER_COMMAND
from tests.chaos.stroll import define_stroll, stroll_submission
from tests.support.processes import wait_for

WORKERS = 2
P50_SECONDS, P99_SECONDS = 0.3, 1.0
IDLE_BAR_PERCENT = 2.0
SUBMITTERS, GREEDY, GREEDY_SHARE = 50, 3, 0.75
ORGANISERS_EVERY = 500


def measure(
    bars: Bars,
    *,
    queued: int = 10_000,
    seconds: float = 45.0,
    idle_seconds: float = 20.0,
    poll: bool = False,
) -> None:
    """Queue verifications, let the workers work for a while, and then let them wait."""
    with running_cluster(poll=poll) as (cluster, benchmark):
        cluster.patch("/queue", by="olivia", json={"paused": True, "reason": "not measured yet"})
        queue_copies(cluster.database, submit_one(cluster, benchmark), queued)
        bars.say(f"{queued + 1:,} verifications of {SUBMITTERS + 1} submitters wait")
        hold_starts(bars, cluster, seconds)
        hold_idle(bars, cluster, idle_seconds)


@contextlib.contextmanager
def running_cluster(*, poll: bool) -> Iterator[tuple[Any, Benchmark]]:
    """Start a server and its workers. Yields it with a benchmark that trains for a second."""
    with tempfile.TemporaryDirectory(prefix="finishline-perf-") as name:
        folder = Path(name)
        definition = folder / "benchmarks" / "stroll.toml"
        definition.parent.mkdir()
        definition.write_text(define_stroll(DIGITS.read_text()))
        cluster = Cluster(
            folder,
            benchmarks_dir=definition.parent,
            worker_command=[*WORKER_COMMAND, *(["--pull"] if poll else [])],
            hardware_class="cpu-chaos",
            workers=WORKERS,
        )
        try:
            cluster.start()
            yield cluster, load_benchmark(definition)
        finally:
            cluster.stop()


def submit_one(cluster: Any, benchmark: Benchmark) -> str:
    """Submit, and ask for a verification, which waits. Its id."""
    files = stroll_submission(benchmark, 1)
    answer = cluster.post("/submissions", by="alice", files=files)
    path = f"/submissions/{answer.json()['id']}/verifications"
    asked = cluster.post(path, by="olivia", json={"reason": "record"})
    if not asked.is_success:
        raise SystemExit(f"dispatch: {asked.text}")
    return str(asked.json()["id"])


def queue_copies(database: Database, verification_id: str, count: int) -> None:
    """Copy a waiting verification, its submission and its attempt."""
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
            for run_row in runs:
                # As if each had trained: runs alike are looked at, for copies of one another.
                own = {
                    "submission_id": s,
                    "log_sha256": f"{number:032d}{run_row['log_sha256'][:32]}",
                    "best_quality": run_row["best_quality"] - number / 1e7,
                }
                copies[RunRow].append({k: x for k, x in run_row.items() if k != "id"} | own)
        for table, rows in copies.items():
            session.execute(insert(table), rows)


def whose(number: int, count: int) -> int:
    """Number the submitter of an attempt from 0: the greedy came first, with three quarters."""
    if number < int(count * GREEDY_SHARE):
        return number % GREEDY
    return GREEDY + number % (SUBMITTERS - GREEDY)


def hold_starts(bars: Bars, cluster: Any, seconds: float) -> None:
    """Let the workers work for a while, and compare latency and order with their bars."""
    cluster.patch("/queue", by="olivia", json={"paused": False})
    wait_for(lambda: count(cluster, "done") >= WORKERS, seconds=60, what="the first verdicts")
    time.sleep(seconds)
    cluster.patch("/queue", by="olivia", json={"paused": True, "reason": "measured"})
    wait_for(lambda: count(cluster, "running") == 0, seconds=60, what="the last to end")
    with cluster.database.read() as session:
        attempts = session.scalars(select(Attempt)).unique().all()
        delays = [d for name in cluster.worker_names for d in free_to_lease(attempts, name)]
        p50, p99 = percentiles(delays)
        bars.hold(f"free to next lease, p50 of {len(delays)}", p50, " s", at_most=P50_SECONDS)
        bars.hold(f"free to next lease, p99 of {len(delays)}", p99, " s", at_most=P99_SECONDS)
        off = furthest_from_next([each for each in attempts if not each.is_apart])
    bars.hold("furthest from being next", off, at_most=WORKERS)


def count(cluster: Any, state: str) -> int:
    """Count attempts in a state."""
    with cluster.database.read() as session:
        query = select(func.count()).select_from(Attempt).where(Attempt.state == state)
        return session.scalar(query) or 0


def free_to_lease(attempts: Sequence[Attempt], worker: str) -> list[float]:
    """Return seconds from each end of an attempt of a worker to its lease of the next one."""
    spans = sorted(
        (each.started_at, each.ended_at)
        for each in attempts
        if each.worker == worker and each.started_at and each.ended_at
    )
    return [(after[0] - before[1]).total_seconds() for before, after in itertools.pairwise(spans)]


def furthest_from_next(attempts: Sequence[Attempt]) -> int:
    """Return how many others were before an attempt when it started, at most. 0: each was next.

    A retry waits from the moment it was queued, and goes to another worker than the failed one.
    """
    begun = [(each.started_at, each) for each in attempts if each.started_at is not None]
    failed = {(each.verification_id, each.worker) for each in attempts if each.state == "failed"}
    if len({each.worker for _, each in begun}) == 1:
        failed = set()
    waiting = {each.id: each for each in attempts}
    turns, furthest = NO_TURNS, 0
    for started_at, one in sorted(begun, key=lambda each: each[0]):
        line = fair_order(
            (
                each
                for each in waiting.values()
                if each.created_at <= started_at
                and (each.number == 1 or (each.verification_id, one.worker) not in failed)
            ),
            turns,
        )
        furthest = max(furthest, line.index(waiting.pop(one.id)))
        turns = turns.after(one, started_at)
    return furthest


def hold_idle(bars: Bars, cluster: Any, seconds: float) -> None:
    """Compare the processor time of an idle server and worker with its bar."""
    paused = idle_percent(cluster, seconds / 2)
    bars.hold("idle, everything queued and paused", paused, " %", at_most=IDLE_BAR_PERCENT)
    with cluster.database.write() as session:
        for table in (Attempt, Verification):
            session.execute(update(table).where(table.state == "queued").values(state="cancelled"))
    cluster.patch("/queue", by="olivia", json={"paused": False})
    idle = idle_percent(cluster, seconds)
    bars.hold("idle, nothing queued", idle, " % of a core", at_most=IDLE_BAR_PERCENT)


def idle_percent(cluster: Any, seconds: float) -> float:
    """Return the percent of a core that server and worker take together while idle."""
    processes = [cluster.server.process, cluster.workers[0].process]
    time.sleep(2.0)  # Requests sent just before are done by then.
    before, began = cpu_seconds(*processes), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(*processes) - before) / (time.monotonic() - began)


if __name__ == "__main__":
    run(measure)
