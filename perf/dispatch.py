"""Measure how soon a free worker is at work again, and whether dispatch keeps the fair order.

`python -m perf.dispatch [--queued 10000] [--seconds 45]` starts PostgreSQL, Redis, a server and two
workers whose training trains nothing, queues verifications of 50 submitters of whom three are
greedy, and measures over the attempts that start:

* from a worker free (its report answered) to its next training process started: p50, p99;
* the order of started attempts against rules.fair_queue;
* the cost of a round of the dispatch loop, with everything queued;
* the processor time of server and workers while nothing is queued.

Exit code 1 where a bar is missed: 300 ms at the median, any attempt out of order by more than the
workers there are, 2 % of a core when idle.
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from sqlalchemy import func, select, update

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.verification.fair_queue import Waiting, fair_order
from perf.dispatch_installation import Installation, installed
from perf.dispatch_queue import define, queue_copies, submit_one
from perf.harness import DIGITS, Bars, percentiles
from perf.servers import cpu_seconds
from server.base.models import Attempt, Verification
from server.verifications.queue_order import anything_to_send, take_due
from tests.support.processes import wait_for

WORKERS = ("walter-1", "walter-2")
FREE_TO_CHILD_BAR_SECONDS = 0.3
IDLE_BAR_PERCENT = 2.0
ROUNDS = 20
ORDER_BAR = len(WORKERS)
BARS = Bars("dispatch")


def main() -> int:
    """Measure, print, and say by the exit code whether every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="finishline-perf-") as name:
        folder = Path(name)
        (folder / "benchmarks").mkdir()
        definition = folder / "benchmarks" / "nothing.toml"
        definition.write_text(define(DIGITS.read_text()))
        with installed(folder, benchmarks_dir=definition.parent) as installation:
            first = submit_one(installation, load_benchmark(definition))
            waiting = queue_copies(installation.database, first, wanted.queued)
            submitters = len({one.submitter for one in waiting})
            BARS.say(f"{len(waiting):,} verifications of {submitters} submitters wait")
            measure_starts(installation, waiting, wanted.seconds)
            measure_idle(installation, wanted.idle_seconds)
    return BARS.exit_code


def measure_starts(installation: Installation, waiting: Sequence[Waiting], seconds: float) -> None:
    """Let the workers work for a while, and hold latency and order against their bars."""
    server = installation.server.process
    cpu_before, began = cpu_seconds(server), time.monotonic()
    for name in WORKERS:
        installation.start_worker(name)
    wait_for(
        lambda: count(installation, "done") >= len(WORKERS), seconds=60, what="the first verdicts"
    )
    time.sleep(seconds)
    spent = time.monotonic() - began
    cpu = 100 * (cpu_seconds(server) - cpu_before) / spent
    done = count(installation, "done")
    BARS.say(f"{done} verified in {spent:.0f} s by {len(WORKERS)} workers; {cpu:.0f} % of a core")
    report_round(installation)
    installation.post("/queue/pause", by="olivia", json={"reason": "measured"})
    wait_for(lambda: count(installation, "running") == 0, seconds=60, what="the last to end")
    delays = [d for name in WORKERS for d in free_to_child(installation.folder, name)]
    p50, p99 = percentiles(delays)
    BARS.say(f"free to child started, {len(delays)} times: p99 {1000 * p99:.0f} ms")
    BARS.hold("free to child started, p50", p50, " s", at_most=FREE_TO_CHILD_BAR_SECONDS)
    check_order(installation, waiting)


def count(installation: Installation, state: str) -> int:
    """Number of attempts in a state."""
    with installation.database.read() as session:
        query = select(func.count()).select_from(Attempt).where(Attempt.state == state)
        return session.scalar(query) or 0


def free_to_child(folder: Path, name: str) -> list[float]:
    """Seconds from each time a worker was free to its next child."""
    notes = [json.loads(line) for line in (folder / f"{name}.notes").read_text().splitlines()]
    return [
        after["at"] - before["at"]
        for before, after in itertools.pairwise(notes)
        if (before["what"], after["what"]) == ("free", "child")
    ]


def check_order(installation: Installation, waiting: Sequence[Waiting]) -> None:
    """Compare the started attempts with the beginning of the fair order."""
    due = {one.attempt_id: place for place, one in enumerate(fair_order(waiting))}
    with installation.database.read() as session:
        started = session.execute(
            select(Attempt.id, Attempt.sends, Attempt.submitter_id)
            .where(Attempt.started_at.is_not(None))
            .order_by(Attempt.started_at)
        ).all()
    off = max(abs(due[row.id] - place) for place, row in enumerate(started))
    again = sum(row.sends > 1 for row in started)
    submitters = len({row.submitter_id for row in started})
    BARS.say(f"{len(started)} started, of {submitters} submitters, {again} sent more than once")
    BARS.hold("furthest from its place in fair order", off, at_most=ORDER_BAR)


def report_round(installation: Installation) -> None:
    """Print the cost of one round of the dispatch loop for this process, with all queued."""
    looks, choices = [], []
    for _ in range(ROUNDS):
        with installation.database.read() as session:
            before = time.thread_time()
            anything_to_send(session, alive_seconds=20.0)
            looks.append(time.thread_time() - before)
            before, began = time.thread_time(), time.perf_counter()
            take_due(session, alive_seconds=20.0)
            choices.append((time.thread_time() - before, time.perf_counter() - began))
            session.rollback()
    began = time.perf_counter()
    installation.get("/queue")
    shown = time.perf_counter() - began
    cpu, wall = (statistics.median(figures) for figures in zip(*choices, strict=True))
    BARS.say(
        f"a round: {1000 * statistics.median(looks):.1f} ms of processor time to look, "
        f"{1000 * cpu:.1f} ms ({1000 * wall:.1f} ms in all) to choose; "
        f"the whole queue as JSON with expected starts {1000 * shown:.0f} ms"
    )


def measure_idle(installation: Installation, seconds: float) -> None:
    """Hold the processor time of server and one worker while nothing is to be done."""
    processes = [installation.server.process, installation.worker()]
    paused = idle_percent(processes, seconds / 2)
    BARS.hold("idle, everything queued and paused", paused, " %", at_most=IDLE_BAR_PERCENT)
    with installation.database.write() as session:
        session.execute(update(Attempt).where(Attempt.state == "queued").values(state="cancelled"))
        session.execute(
            update(Verification).where(Verification.state == "queued").values(state="cancelled")
        )
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
