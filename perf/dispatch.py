"""How soon a free worker is at work again, and whether it gets what is next in fair order.

`python perf/dispatch.py [--queued 10000] [--seconds 45]` starts PostgreSQL, Redis, a server and two
workers whose training trains nothing, queues verifications of 50 submitters of whom three are
greedy, and measures over what starts:

* from a worker free (its report answered) to its next training process started: p50, p99;
* the order of what started against rules.fair_queue;
* what a round of the dispatch loop costs, with everything queued;
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
from dispatching.installation import Installation, wait_until
from dispatching.queued import define, queue_copies, submit_one
from sqlalchemy import func, select, update

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.verification.fair_queue import Waiting, fair_order
from server.models import Attempt, Verification
from server.queues.sending import anything_to_send, take_due

WORKERS = ("walter-1", "walter-2")
FREE_TO_CHILD_BAR_SECONDS = 0.3
IDLE_BAR_PERCENT = 2.0
ROUNDS = 20
DIGITS = Path(__file__).parents[1] / "benchmarks" / "digits.toml"


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
        installation = Installation(folder, benchmarks_dir=definition.parent)
        try:
            first = submit_one(installation, load_benchmark(definition))
            waiting = queue_copies(installation.database, first, wanted.queued)
            print(f"{len(waiting):,} verifications wait, of {len({w.submitter for w in waiting})}")
            good = [measure_starts(installation, waiting, wanted.seconds)]
            good.append(measure_idle(installation, wanted.idle_seconds))
        finally:
            installation.stop()
    return 0 if all(good) else 1


def measure_starts(installation: Installation, waiting: Sequence[Waiting], seconds: float) -> bool:
    """Let the workers work for a while; whether latency and order are as they should be."""
    cpu_before, began = cpu_seconds(installation.server), time.monotonic()
    workers = [installation.start_worker(name) for name in WORKERS]
    wait_until(lambda: count(installation, "done") >= len(WORKERS), "the first to be verified")
    time.sleep(seconds)
    done = count(installation, "done")
    spent = time.monotonic() - began
    cpu = 100 * (cpu_seconds(installation.server) - cpu_before) / spent
    print(
        f"{done} verified in {spent:.0f} s by {len(workers)} workers; server {cpu:.0f} % of a core"
    )
    report_round(installation)
    installation.post("/queue/pause", by="olivia", json={"reason": "measured"})
    wait_until(lambda: count(installation, "running") == 0, "the last to end")
    delays = sorted(d for name in WORKERS for d in free_to_child(installation.folder, name))
    p50, p99 = statistics.median(delays), delays[int(0.99 * len(delays))]
    good = p50 <= FREE_TO_CHILD_BAR_SECONDS
    print(
        f"free to child started, {len(delays)} times: p50 {1000 * p50:.0f} ms, p99 "
        f"{1000 * p99:.0f} ms (bar: p50 {1000 * FREE_TO_CHILD_BAR_SECONDS:.0f} ms)"
        f"{'' if good else ' MISSED'}"
    )
    return check_order(installation, waiting) and good


def count(installation: Installation, state: str) -> int:
    """How many attempts are in a state."""
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


def check_order(installation: Installation, waiting: Sequence[Waiting]) -> bool:
    """Whether what started is the beginning of the fair order, within the workers there are."""
    due = {one.attempt_id: place for place, one in enumerate(fair_order(waiting))}
    with installation.database.read() as session:
        started = session.execute(
            select(Attempt.id, Attempt.sends, Attempt.submitter_id)
            .where(Attempt.started_at.is_not(None))
            .order_by(Attempt.started_at)
        ).all()
    off = max(abs(due[row.id] - place) for place, row in enumerate(started))
    again = sum(row.sends > 1 for row in started)
    good = off <= len(WORKERS)
    submitters = len({row.submitter_id for row in started})
    print(
        f"{len(started)} started, of {submitters} submitters, {again} sent more than once; none is "
        f"further than {off} from its place in fair order (bar: {len(WORKERS)})"
        f"{'' if good else ' MISSED'}"
    )
    return good


def report_round(installation: Installation) -> None:
    """What one round of the dispatch loop costs this process with everything queued."""
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
    print(
        f"a round: {1000 * statistics.median(looks):.1f} ms of processor time to look, "
        f"{1000 * cpu:.1f} ms ({1000 * wall:.1f} ms in all) to choose; "
        f"the whole queue as JSON with expected starts {1000 * shown:.0f} ms"
    )


def measure_idle(installation: Installation, seconds: float) -> bool:
    """The processor time of server and one worker while nothing is to be done."""
    server, *rest = installation.server, *psutil.Process().children()
    worker = next(one for one in rest if "noting_worker.py" in " ".join(one.cmdline()))
    paused = idle_percent([server, worker], seconds / 2)
    print(f"idle, everything queued and paused: {paused:.2f} % of a core")
    with installation.database.write() as session:
        session.execute(update(Attempt).where(Attempt.state == "queued").values(state="cancelled"))
        session.execute(
            update(Verification).where(Verification.state == "queued").values(state="cancelled")
        )
    installation.post("/queue/resume", by="olivia", json={})
    idle = idle_percent([server, worker], seconds)
    good = max(idle, paused) <= IDLE_BAR_PERCENT
    print(
        f"idle, nothing queued: server and a worker {idle:.2f} % of a core "
        f"(bar: {IDLE_BAR_PERCENT:g} %){'' if good else ' MISSED'}"
    )
    return good


def cpu_seconds(process: psutil.Process) -> float:
    """Processor seconds that a process has taken so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def idle_percent(processes: Sequence[psutil.Process], seconds: float) -> float:
    """Percent of a core that processes take together over a while."""
    time.sleep(2.0)  # What was asked for just before is done.
    before, began = sum(map(cpu_seconds, processes)), time.monotonic()
    time.sleep(seconds)
    return 100 * (sum(map(cpu_seconds, processes)) - before) / (time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
