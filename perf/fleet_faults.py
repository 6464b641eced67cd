"""Kill what a fleet runs on, and count what was lost or doubled by it."""

import asyncio
import signal
import subprocess
import time
from contextlib import suppress

import psutil
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from perf.fleet import Fleet, ask_evenly
from server.base.models import Attempt, Verification
from tests.support.processes import wait_for

FAULT_SECONDS = 100.0
DEAD_SECONDS = 2.0
DRAIN_SECONDS = 240.0


async def hurt(fleet: Fleet, size: int) -> None:
    """Kill one thing after the other while work goes on."""
    fleet.crowd.forget_figures()
    asking_for_more = asyncio.create_task(ask_evenly(fleet, size, FAULT_SECONDS))
    for name in ("server-0", "redis", "postgresql", "workers"):
        await asyncio.sleep(15.0)
        fleet.bars.say(f"kill -9: {name}")
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
    fleet.bars.say(
        f"{len(fleet.asked)} asked for, ended {time.monotonic() - began:.0f} s later: {found}; "
        f"{made_again} attempts were made again"
    )
    fleet.bars.hold(
        "asked for and not verified", len(fleet.asked) - found.get("done", 0), at_most=0
    )
    fleet.bars.hold("verified twice", doubled + twice, at_most=0)


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
        fleet.bars.say(
            f"not verified: {one.verification_id}, attempt {one.number}: {one.state}, sent"
            f" {one.sends} times, worker {one.worker}, {', '.join(map(str, times))}, {one.failure}"
        )
