"""Phases of a benchmark: when it takes submissions, when its rules are frozen, and embargoes."""

import re
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
from server.base.database import benchmarks_of, utc_now
from server.base.errors import ConflictError
from server.base.events import EmbargoLifted, emit
from server.base.forms import Body, Sentence, example
from server.base.models import BenchmarkPhases, Submission
from server.benchmarks.definitions import find_benchmark, sha256_in_force
from server.people.audit import Subject, record
from server.people.callers import Caller, Fields
from server.people.declared import Form, Routes, filled

FIRST_YEAR, LAST_YEAR = 2000, 8999
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


DATES = tuple(Dates.model_fields)
NO_DATES = Dates(opens_at=None, freezes_at=None, closes_at=None, embargo_until=None)


def has_come(moment: datetime | None, now: datetime) -> bool:
    """Return whether there is a moment and it has come."""
    return moment is not None and moment <= now


def is_embargoed(dates: Dates, now: datetime) -> bool:
    """Return whether a result accepted at this moment stays hidden."""
    return dates.embargo_until is not None and now < dates.embargo_until


def phase_at(dates: Dates, now: datetime) -> PhaseName:
    """Return the phase at a moment. It is "open" before the rules are frozen."""
    if has_come(dates.closes_at, now):
        return "closed"
    if dates.opens_at is not None and now < dates.opens_at:
        return "announced"
    return "frozen" if has_come(dates.freezes_at, now) else "open"


def why_not_taken(dates: Dates, now: datetime, *, benchmark_id: str) -> str | None:
    """Say when a benchmark takes submissions, or None if it takes them at this moment."""
    match phase_at(dates, now):
        case "announced":
            opens = moment_words(dates.opens_at)
            return f"{benchmark_id} is not open yet: it takes submissions from {opens} on."
        case "closed":
            closed = moment_words(dates.closes_at)
            return f"{benchmark_id} is closed: it took submissions until {closed}."
    return None


def phases_at(dates: Dates, now: datetime, benchmark: Benchmark) -> PhasesView:
    """Describe the phase of a benchmark at a moment, with a sentence on it and the next one."""
    name, embargoed = phase_at(dates, now), is_embargoed(dates, now)
    frozen = has_come(dates.freezes_at, now)
    closes, freezes = moment_words(dates.closes_at), moment_words(dates.freezes_at)
    words = ["Open." if dates != NO_DATES else "Open: it has no dates."]
    if name == "announced":
        words = [f"Not open yet: it opens on {moment_words(dates.opens_at)}."]
    elif closes:
        words = [f"{'Closed since' if name == 'closed' else 'Open until'} {closes}."]
    if freezes:
        when = f"since {freezes}" if frozen else f"from {freezes} on"
        words.append(f"Its rules are frozen {when}.")
    if embargoed:
        words.append(f"Results are under embargo until {moment_words(dates.embargo_until)}.")
    return PhasesView.of(
        dates,
        phase=name,
        sentence=" ".join(words),
        takes_submissions=name in ("open", "frozen"),
        rules_frozen=frozen,
        under_embargo=embargoed,
        frozen_sha256=benchmark.sha256 if frozen else None,
    )


def moment_words(moment: datetime | None) -> str:
    """Format a moment in UTC, to the minute, with seconds if it has any."""
    if moment is None:
        return ""
    shown = "%Y-%m-%d %H:%M:%S" if moment.second else "%Y-%m-%d %H:%M"
    return f"{moment.strftime(shown)} UTC"


def _read_moment(value: Any) -> datetime:
    text = value if isinstance(value, str) else ""
    try:
        # The very first and last days can't be moved to another time zone.
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


class PhasesCreate(Body, Dates):
    """All dates of a benchmark, and the reason. An omitted date is removed.

    `unfreeze` allows a change of a past `freezes_at`, which an omission alone must not make.
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
        opens, freezes, closes = self.opens_at, self.freezes_at, self.closes_at
        found: list[str] = []
        if opens is not None and has_come(closes, opens):
            found.append(f"The closing date must be after the opening, {moment_words(opens)}.")
        if closes is not None and freezes is not None and freezes > closes:
            found.append(f"The freeze must not be after the closing date, {moment_words(closes)}.")
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


def current_dates(session: Session, benchmark_id: str) -> Dates:
    """Read the current dates of a benchmark."""
    return all_current_dates(session, benchmark_id).get(benchmark_id, NO_DATES)


def all_current_dates(session: Session, *benchmark_ids: str) -> dict[str, Dates]:
    """Read the current dates of some or all benchmarks, if they have any."""
    latest = select(func.max(BenchmarkPhases.id)).group_by(BenchmarkPhases.benchmark_id)
    if benchmark_ids:
        latest = latest.where(BenchmarkPhases.benchmark_id.in_(benchmark_ids))
    columns = (BenchmarkPhases.benchmark_id, *(getattr(BenchmarkPhases, name) for name in DATES))
    rows = session.execute(select(*columns).where(BenchmarkPhases.id.in_(latest)))
    return {row.benchmark_id: Dates.model_validate(row) for row in rows}


def frozen_benchmarks(session: Session) -> set[str]:
    """List the ids of benchmarks with frozen rules."""
    every, now = all_current_dates(session).items(), utc_now()
    return {name for name, dates in every if has_come(dates.freezes_at, now)}


router = Routes(tags=["benchmarks"])
CONSOLE = "/console/phases"
WITHOUT_TIME_ZONE = (len("2026-11-21T18:00"), len("2026-11-21T18:00:00"))


@router.read("/benchmarks/{benchmark_id}/phases", to_all=True)
def get_phases(session: Session, benchmark_id: str) -> PhasesHistory:
    """Read the phase of a benchmark, its dates, and their history, with the reasons."""
    benchmark = find_benchmark(benchmarks_of(session), benchmark_id)
    dates = current_dates(session, benchmark_id)
    history = session.scalars(
        select(BenchmarkPhases)
        .filter_by(benchmark_id=benchmark_id)
        .order_by(BenchmarkPhases.id.desc())
    )
    return PhasesHistory(
        benchmark=benchmark_id,
        phases=phases_at(dates, utc_now(), benchmark),
        history=[PhasesSet.of(row, set_by=row.setter.name) for row in history],
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
        # Dates out of order are shown at the last of them.
        renamed={"form": "closes_at"},
    ),
    role="organiser",
    status=201,
)
def set_phases(
    session: Session, caller: Caller, benchmark_id: str, body: PhasesCreate
) -> PhasesView:
    """Set all dates of a benchmark, with the reason. An omitted date is removed."""
    benchmark, now = find_benchmark(benchmarks_of(session), benchmark_id), utc_now()
    before = current_dates(session, benchmark_id)
    if before.freezes_at != body.freezes_at:
        _require_may_change_freeze(session, benchmark_id, before, body, now)
    wanted = body.model_dump(include=set(DATES))
    more = {"reason": body.reason, "set_by": caller.user_id, "set_at": now}
    session.add(BenchmarkPhases(benchmark_id=benchmark_id, **wanted, **more))
    raise_board_version(session, benchmark_id)
    session.flush()
    lift_embargo(session, benchmark_id, now)
    record(
        session,
        caller,
        "benchmark.phases",
        Subject("benchmark", benchmark_id),
        reason=body.reason,
        before=None if before == NO_DATES else before.model_dump(),
        after=wanted | ({"unfreeze": True} if body.unfreeze else {}),
    )
    return phases_at(Dates(**wanted), now, benchmark)


def _require_may_change_freeze(
    session: Session, benchmark_id: str, before: Dates, wanted: PhasesCreate, now: datetime
) -> None:
    if has_come(before.freezes_at, now) and not wanted.unfreeze:
        raise ConflictError(
            f"The rules of {benchmark_id} are frozen since "
            f"{moment_words(before.freezes_at)}; leave freezes_at as it is, or "
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
    """List the benchmarks with hidden submissions after the end of their embargo."""
    hidden = session.scalars(
        select(Submission.benchmark_id).where(Submission.embargoed.is_(true())).distinct()
    ).all()
    return [name for name in hidden if not is_embargoed(current_dates(session, name), now)]


def lift_embargo(session: Session, benchmark_id: str, now: datetime) -> int:
    """Show a benchmark's hidden submissions for good after its embargo. Returns their number."""
    if is_embargoed(current_dates(session, benchmark_id), now):
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


def admit(session: Session, benchmark: Benchmark, *, archive: bool) -> bool:
    """Admit a scored submission. Returns whether it is under embargo.

    An archive is accepted in every phase, without an embargo. Raises ConflictError outside the
    dates, and if another definition came in force since the submission was scored.
    """
    name, now = benchmark.benchmark_id, utc_now()
    if sha256_in_force(session, name) not in (None, benchmark.sha256):
        raise ConflictError(
            f"The definition of {name} changed while this submission was checked.",
            hint="Send it again: it is checked under the new definition.",
        )
    dates = current_dates(session, name)
    refusal = why_not_taken(dates, now, benchmark_id=name)
    if refusal is not None and not archive:
        raise ConflictError(refusal)
    return is_embargoed(dates, now) and not archive
