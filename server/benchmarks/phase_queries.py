"""Phases of a benchmark: when it takes submissions, and which results the same rules scored."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import NamedTuple, cast

from sqlalchemy import Table, bindparam, func, select
from sqlalchemy.orm import Session

from finishline.api.benchmarks import PhaseName
from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.models import BenchmarkPhases

_CURRENT = (
    select(BenchmarkPhases)
    .where(BenchmarkPhases.benchmark_id == bindparam("benchmark_id"))
    .order_by(BenchmarkPhases.id.desc())
    .limit(1)
    .execution_options(populate_existing=True)
)


class Dates(NamedTuple):
    """Dates of a benchmark, and its frozen definition, if there is one."""

    opens_at: datetime | None
    freezes_at: datetime | None
    closes_at: datetime | None
    embargo_until: datetime | None
    frozen_sha256: str | None


_SET = cast(Table, BenchmarkPhases.__table__).c
_DATES = (
    select(_SET.opens_at, _SET.freezes_at, _SET.closes_at, _SET.embargo_until, _SET.frozen_sha256)
    .where(_SET.benchmark_id == bindparam("benchmark_id"))
    .order_by(_SET.id.desc())
    .limit(1)
)


@dataclass(frozen=True)
class Phases:
    """The dates, each from that moment on: open, frozen, closed, and the end of an embargo.

    From `freezes_at` submissions are scored under one definition, even if the files change. A
    result that comes in before `embargo_until` is shown from then on.
    """

    opens_at: datetime | None = None
    freezes_at: datetime | None = None
    closes_at: datetime | None = None
    embargo_until: datetime | None = None


NO_PHASES = Phases()


def phase_at(phases: Phases, now: datetime) -> PhaseName:
    """The phase at a moment; "open" before the rules are frozen."""
    if phases.closes_at is not None and phases.closes_at <= now:
        return "closed"
    if phases.opens_at is not None and now < phases.opens_at:
        return "announced"
    return "frozen" if is_frozen(phases, now) else "open"


def is_frozen(phases: Phases, now: datetime) -> bool:
    """Whether the definition is frozen."""
    return phases.freezes_at is not None and phases.freezes_at <= now


def is_embargoed(phases: Phases, now: datetime) -> bool:
    """Whether a result that comes in at this moment is not shown yet."""
    return phases.embargo_until is not None and now < phases.embargo_until


def why_not_taken(phases: Phases, now: datetime, *, benchmark_id: str) -> str | None:
    """A sentence that says when, or None if a submission is taken at this moment."""
    name = phase_at(phases, now)
    if name == "announced" and phases.opens_at is not None:
        opens = moment_words(phases.opens_at)
        return f"{benchmark_id} is not open yet: it takes submissions from {opens} on."
    if name == "closed" and phases.closes_at is not None:
        closed = moment_words(phases.closes_at)
        return f"{benchmark_id} is closed: it took submissions until {closed}."
    return None


def sentence_at(phases: Phases, now: datetime) -> str:
    """Describe the present phase of a benchmark and the next one."""
    if phases == NO_PHASES:
        return "Open: it has no dates."
    name, closes, freezes = phase_at(phases, now), phases.closes_at, phases.freezes_at
    if name == "announced" and phases.opens_at is not None:
        words = [f"Not open yet: it opens on {moment_words(phases.opens_at)}."]
    elif closes is not None:
        until = "Closed since" if name == "closed" else "Open until"
        words = [f"{until} {moment_words(closes)}."]
    else:
        words = ["Open."]
    if freezes is not None:
        frozen = f"since {moment_words(freezes)}"
        if not is_frozen(phases, now):
            frozen = f"from {moment_words(freezes)} on"
        words.append(f"Its rules are frozen {frozen}.")
    if phases.embargo_until is not None and is_embargoed(phases, now):
        words.append(f"Results are under embargo until {moment_words(phases.embargo_until)}.")
    return " ".join(words)


def faults(phases: Phases) -> list[str]:
    """Sentences about dates that are out of order."""
    found: list[str] = []
    opens, freezes, closes = phases.opens_at, phases.freezes_at, phases.closes_at
    if opens is not None and closes is not None and closes <= opens:
        found.append(f"The closing date must be after the opening, {moment_words(opens)}.")
    if freezes is not None and closes is not None and freezes > closes:
        found.append(f"The freeze must not be after the closing date, {moment_words(closes)}.")
    return found


def changed(earlier: Phases, later: Phases) -> tuple[str, ...]:
    """The names of the dates that differ."""
    names = (field.name for field in fields(Phases))
    return tuple(name for name in names if getattr(earlier, name) != getattr(later, name))


def moment_words(moment: datetime) -> str:
    """A moment in UTC, to the minute; seconds where it has any."""
    shown = "%Y-%m-%d %H:%M:%S" if moment.second else "%Y-%m-%d %H:%M"
    return f"{moment.strftime(shown)} UTC"


# Fields that decide whether a run reached its target, its time, and the result of the runs.
SCORED_BY = {
    "target": "target",
    "reach": "target.reach",
    "clock": "clock",
    "runs": "runs",
    "data_set": "data_set",
    "hyperparameters": "hyperparameters",
    "convergence_unit": "convergence",
    "rcp": "rcp",
}


def rules_that_differ(earlier: Benchmark, current: Benchmark) -> tuple[str, ...]:
    """The parts of a definition's file that scoring reads and that differ between two of them.

    Empty where only words, replays or calibrated runs differ: figures may be compared.
    """
    return tuple(
        name
        for attribute, name in SCORED_BY.items()
        if getattr(earlier, attribute) != getattr(current, attribute)
    )


def current_phases(session: Session, benchmark_id: str) -> BenchmarkPhases | None:
    """Latest phases of a benchmark; None if none were ever set."""
    return session.scalar(_CURRENT, {"benchmark_id": benchmark_id})


def current_dates(session: Session, benchmark_id: str) -> Dates | None:
    """Columns of `current_phases` that apply to each submission, without an ORM object."""
    session.flush()  # As before each statement of the session's own.
    row = session.connection().execute(_DATES, {"benchmark_id": benchmark_id}).one_or_none()
    return None if row is None else Dates._make(row)


def all_current_phases(session: Session) -> dict[str, BenchmarkPhases]:
    """Latest phases by benchmark id; benchmarks without any are left out."""
    latest = select(func.max(BenchmarkPhases.id)).group_by(BenchmarkPhases.benchmark_id)
    rows = session.scalars(select(BenchmarkPhases).where(BenchmarkPhases.id.in_(latest)))
    return {row.benchmark_id: row for row in rows}


def phases_history(session: Session, benchmark_id: str) -> Sequence[BenchmarkPhases]:
    """Every change of a benchmark's phases, the latest first."""
    return session.scalars(
        select(BenchmarkPhases)
        .where(BenchmarkPhases.benchmark_id == benchmark_id)
        .order_by(BenchmarkPhases.id.desc())
    ).all()
