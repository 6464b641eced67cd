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
import random
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from sqlalchemy import select

from perf.fleet import OF_ONE_TOKEN, Fleet, ask_evenly, grow, installed, load, rate_of
from perf.fleet_faults import FAULT_SECONDS, hurt, settle
from perf.harness import Bars, percentiles, print_table
from perf.simulated_workers import Wire
from server.base.database import utc_now
from server.base.models import Attempt

HELLOS_BAR, DISPATCH_BAR_SECONDS = 500.0, 2.0
CONNECTIONS = 32
PAGES = ("/workers", "/api/v1/workers", "/api/v1/queue", "/")
BARS = Bars("workers")


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
        installed(Path(name), BARS, copies=wanted, workers=max(sizes)) as fleet,
    ):
        asyncio.run(measure(fleet, sizes, asked.seconds, asked.faults_at))
    return BARS.exit_code


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


if __name__ == "__main__":
    sys.exit(main())
