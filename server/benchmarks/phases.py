"""Phases of a benchmark: when it takes submissions, when its rules are frozen, and embargoes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, StrictBool, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import func, select, true, update
from sqlalchemy.orm import Session

from finishline.api.benchmarks import Dates, PhaseName, PhasesView
from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.errors import ConflictError
from server.base.events import EmbargoLifted, emit
from server.base.forms import Body, Sentence, example
from server.base.models import BenchmarkPhases, Submission
from server.base.services import Services
from server.benchmarks.definitions import find_benchmark
from server.people.audit import Subject, record
from server.people.callers import Caller, Fields
from server.people.declared import Form, Routes, filled

FIRST_YEAR, LAST_YEAR = 2000, 8999
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True)
class Phases:
    """The dates, each from that moment on: open, frozen, closed, and the end of an embargo.

    From `freezes_at` no other definition comes in force. A result that comes in before
    `embargo_until` is shown from then on.
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


def moment_words(moment: datetime) -> str:
    """A moment in UTC, to the minute; seconds where it has any."""
    shown = "%Y-%m-%d %H:%M:%S" if moment.second else "%Y-%m-%d %H:%M"
    return f"{moment.strftime(shown)} UTC"


def _read_moment(value: Any) -> datetime:
    """Parse a text with a time zone to a moment in UTC, in whole seconds. Rejects numbers."""
    text = value if isinstance(value, str) else ""
    try:
        # The first and the last days of all cannot be moved to another time zone.
        if not (MOMENT.fullmatch(text) and FIRST_YEAR <= int(text[:4]) <= LAST_YEAR):
            raise ValueError(text)
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise PydanticCustomError(
            "no_moment",
            "no moment; expected one with its time zone, like 2026-11-21T18:00:00Z, of the years "
            "2000 to 8999",
        ) from None
    return moment.astimezone(UTC).replace(microsecond=0)


Moment = Annotated[
    datetime,
    BeforeValidator(_read_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class PhasesCreate(Body):
    """All dates of a benchmark, and the reason. An omitted date is removed.

    `unfreeze` allows a change of `freezes_at` after it has passed, so that nobody does it by
    leaving the date out.
    """

    model_config = example(
        opens_at="2026-12-01T00:00:00Z",
        freezes_at="2026-12-01T00:00:00Z",
        closes_at="2027-01-15T00:00:00Z",
        embargo_until="2027-02-01T00:00:00Z",
        reason="the winter round",
    )

    opens_at: Moment | None = None
    freezes_at: Moment | None = None
    closes_at: Moment | None = None
    embargo_until: Moment | None = None
    reason: Sentence
    unfreeze: StrictBool = False

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        found = faults(phases_of(self))
        if found:
            raise PydanticCustomError("dates_out_of_order", "{text}", {"text": " ".join(found)})
        return self


class PhasesSet(Dates):
    """A change of the dates: by whom, when and why."""

    reason: str
    set_by: str
    set_at: datetime


class PhasesHistory(Schema):
    """Current phases, and every change, the latest first."""

    benchmark: str
    phases: PhasesView
    history: list[PhasesSet]


def phases_of(dates: BenchmarkPhases | PhasesCreate | None) -> Phases:
    """The dates that are stored or requested; none without any."""
    if dates is None:
        return NO_PHASES
    return Phases(dates.opens_at, dates.freezes_at, dates.closes_at, dates.embargo_until)


def phases_view(row: BenchmarkPhases | None, benchmark: Benchmark) -> PhasesView:
    """View of the phase of a benchmark at this moment."""
    phases, now = phases_of(row), utc_now()
    name, frozen = phase_at(phases, now), is_frozen(phases, now)
    return PhasesView.of(
        phases,
        phase=name,
        sentence=sentence_at(phases, now),
        takes_submissions=name in ("open", "frozen"),
        rules_frozen=frozen,
        under_embargo=is_embargoed(phases, now),
        frozen_sha256=benchmark.sha256 if frozen else None,
    )


def current_phases(session: Session, benchmark_id: str) -> BenchmarkPhases | None:
    """Latest phases of a benchmark; None if none were ever set."""
    return next(iter(phases_history(session, benchmark_id, limit=1)), None)


def all_current_phases(session: Session) -> dict[str, BenchmarkPhases]:
    """Latest phases by benchmark id; benchmarks without any are left out."""
    latest = select(func.max(BenchmarkPhases.id)).group_by(BenchmarkPhases.benchmark_id)
    rows = session.scalars(select(BenchmarkPhases).where(BenchmarkPhases.id.in_(latest)))
    return {row.benchmark_id: row for row in rows}


def phases_history(
    session: Session, benchmark_id: str, *, limit: int | None = None
) -> Sequence[BenchmarkPhases]:
    """Every change of a benchmark's phases, the latest first."""
    return session.scalars(
        select(BenchmarkPhases)
        .where(BenchmarkPhases.benchmark_id == benchmark_id)
        .order_by(BenchmarkPhases.id.desc())
        .limit(limit)
    ).all()


def frozen_benchmarks(session: Session, now: datetime) -> set[str]:
    """Ids of the benchmarks whose rules are frozen."""
    rows = all_current_phases(session).items()
    return {name for name, row in rows if is_frozen(phases_of(row), now)}


router = Routes(tags=["benchmarks"])
CONSOLE = "/console/phases"
DATES = ("opens_at", "freezes_at", "closes_at", "embargo_until")
WITHOUT_TIME_ZONE = (len("2026-11-21T18:00"), len("2026-11-21T18:00:00"))


@router.read("/benchmarks/{benchmark_id}/phases", to_all=True)
def get_phases(session: Session, services: Services, benchmark_id: str) -> PhasesHistory:
    """Read the phase of a benchmark, its dates, and their history, with the reasons."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    rows = phases_history(session, benchmark_id)
    return PhasesHistory(
        benchmark=benchmark_id,
        phases=phases_view(rows[0] if rows else None, benchmark),
        history=[PhasesSet.of(row, set_by=row.setter.name) for row in rows],
    )


def _with_time_zone(fields: Fields) -> dict[str, Any]:
    """Convert a browser's fields to the API's: moments get a "Z", as the form says UTC."""
    typed = filled(fields)
    changed: dict[str, Any] = {"unfreeze": typed.get("unfreeze") == "true"}
    for name in (*DATES, "reason"):
        text = typed.get(name)
        is_short = name in DATES and text is not None and len(text) in WITHOUT_TIME_ZONE
        changed |= {} if text is None else {name: f"{text}Z" if is_short else text}
    return changed


@router.command(
    "/benchmarks/{benchmark_id}/phases",
    Form(
        CONSOLE,
        "{benchmark_id}: {0.sentence}",
        asked={"benchmark_id": "benchmark"},
        read=_with_time_zone,
        # Dates out of order are the fault of the last of them.
        renamed={"form": "closes_at"},
    ),
    role="organiser",
    status=201,
)
def set_phases(
    session: Session, services: Services, caller: Caller, benchmark_id: str, body: PhasesCreate
) -> PhasesView:
    """Set all dates of a benchmark, with the reason; a date that is left out is none."""
    benchmark, now = find_benchmark(services.benchmarks, benchmark_id), utc_now()
    before = current_phases(session, benchmark_id)
    if phases_of(before).freezes_at != body.freezes_at:
        _require_may_change_freeze(session, benchmark_id, phases_of(before), body, now)
    row = BenchmarkPhases(
        benchmark_id=benchmark_id,
        reason=body.reason,
        set_by=caller.user_id,
        set_at=now,
        **vars(phases_of(body)),
    )
    session.add(row)
    raise_board_version(session, benchmark_id)
    session.flush()
    lift_embargo(session, benchmark_id, now)
    record(
        session,
        caller,
        "benchmark.phases",
        Subject("benchmark", benchmark_id),
        reason=row.reason,
        before=vars(phases_of(before)) if before is not None else None,
        after=vars(phases_of(row)) | ({"unfreeze": True} if body.unfreeze else {}),
    )
    return phases_view(row, benchmark)


def _require_may_change_freeze(
    session: Session, benchmark_id: str, before: Phases, wanted: PhasesCreate, now: datetime
) -> None:
    if is_frozen(before, now) and not wanted.unfreeze:
        raise ConflictError(
            f"The rules of {benchmark_id} are frozen since "
            f"{moment_words(before.freezes_at or now)}; leave freezes_at as it is, or "
            "unfreeze them too (--unfreeze, the checkbox of the form, unfreeze in JSON)."
        )
    last = session.scalar(
        select(func.max(Submission.submitted_at)).where(
            Submission.benchmark_id == benchmark_id, Submission.evidence != "published"
        )
    )
    freezes_at = wanted.freezes_at
    # Dates are whole seconds.
    if freezes_at is not None and last is not None and last.replace(microsecond=0) > freezes_at:
        raise ConflictError(
            f"freezes_at, {moment_words(freezes_at)}, is before a submission accepted at "
            f"{moment_words(last)}, when the rules were not frozen. Choose a later date."
        )


def due_embargoes(session: Session, now: datetime) -> list[str]:
    """Benchmarks with hidden submissions whose embargo is over."""
    hidden = session.scalars(
        select(Submission.benchmark_id).where(Submission.embargoed.is_(true())).distinct()
    ).all()
    rows = all_current_phases(session) if hidden else {}
    return [name for name in hidden if not is_embargoed(phases_of(rows.get(name)), now)]


def lift_embargo(session: Session, benchmark_id: str, now: datetime) -> int:
    """Show a benchmark's hidden submissions if its embargo is over; returns their number.

    A submission that was shown is never hidden again.
    """
    if is_embargoed(phases_of(current_phases(session, benchmark_id)), now):
        return 0
    shown = session.scalars(
        update(Submission)
        .where(Submission.benchmark_id == benchmark_id, Submission.embargoed.is_(true()))
        .values(embargoed=False)
        .returning(Submission.id)
        .execution_options(synchronize_session=False)
    ).all()
    if shown:
        raise_board_version(session, benchmark_id)
    emit(session, EmbargoLifted(shown))
    return len(shown)
