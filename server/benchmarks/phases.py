"""Phases: submission dates, frozen definitions, embargoes."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import func, select, true, update
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.errors import ConflictError
from server.base.events import EmbargoLifted, emit
from server.base.models import BenchmarkPhases, Submission
from server.benchmarks.phase_queries import (
    all_current_phases,
    changed,
    current_dates,
    current_phases,
    is_embargoed,
    is_frozen,
    moment_words,
    why_not_taken,
)
from server.benchmarks.queries import keep_definition
from server.benchmarks.views import PhasesCreate, phases_of
from server.people.audit import Administrator, Subject, record
from server.people.dependencies import Caller


def due_embargoes(session: Session, now: datetime) -> list[str]:
    """Benchmarks with hidden submissions whose embargo is over."""
    hidden = session.scalars(
        select(Submission.benchmark_id).where(Submission.embargoed.is_(true())).distinct()
    ).all()
    if not hidden:
        return []
    rows = all_current_phases(session)
    return [name for name in hidden if not is_embargoed(phases_of(rows.get(name)), now)]


def lift_embargo(session: Session, benchmark_id: str, now: datetime) -> int:
    """Show a benchmark's hidden submissions if its embargo is over; returns their number.

    A submission that was shown is never hidden again. This raises the board's version first, as
    setting the dates does, and so the two take turns.
    """
    raise_board_version(session, benchmark_id)
    if is_embargoed(phases_of(current_phases(session, benchmark_id)), now):
        return 0
    shown = session.execute(
        update(Submission)
        .where(Submission.benchmark_id == benchmark_id, Submission.embargoed.is_(true()))
        .values(embargoed=False)
        .returning(Submission.id)
        .execution_options(synchronize_session=False)
    )
    ids = [row.id for row in shown]
    emit(session, EmbargoLifted(ids))
    return len(ids)


SERVER = Administrator("server.phases")


class FrozenOtherwiseError(Exception):
    """A result was scored under another definition than the frozen one, which is `sha256`."""

    def __init__(self, sha256: str) -> None:
        super().__init__(sha256)
        self.sha256 = sha256


@dataclass(frozen=True)
class Admission:
    """Whether an admitted submission is under embargo."""

    embargoed: bool


def set_phases(
    session: Session, caller: Caller, benchmark: Benchmark, wanted: PhasesCreate, folder: Path
) -> BenchmarkPhases:
    """Set all dates of a benchmark; written to the audit log. Earlier dates are kept.

    Raises ConflictError if a freeze would be undone without `unfreeze`, or would begin before a
    submission that was accepted already.
    """
    benchmark_id, now = benchmark.benchmark_id, utc_now()
    raise_board_version(session, benchmark_id)
    before = current_phases(session, benchmark_id)
    frozen_sha256 = before.frozen_sha256 if before is not None else None
    if "freezes_at" in changed(phases_of(before), wanted.phases):
        _require_may_change_freeze(session, benchmark_id, before, wanted, now)
        frozen_sha256 = None
    row = BenchmarkPhases(
        benchmark_id=benchmark_id,
        reason=wanted.reason.strip(),
        frozen_sha256=frozen_sha256,
        set_by=caller.user_id,
        set_at=now,
        **vars(wanted.phases),
    )
    session.add(row)
    session.flush()
    if row.frozen_sha256 is None and is_frozen(wanted.phases, now):
        _freeze(session, row, benchmark, folder)
    lift_embargo(session, benchmark_id, now)
    session.refresh(row)
    record(
        session,
        caller,
        "benchmark.phases",
        Subject("benchmark", benchmark_id),
        reason=row.reason,
        before=_logged(before) if before is not None else None,
        after=_logged(row) | ({"unfreeze": True} if wanted.unfreeze else {}),
    )
    return row


def _require_may_change_freeze(
    session: Session,
    benchmark_id: str,
    before: BenchmarkPhases | None,
    wanted: PhasesCreate,
    now: datetime,
) -> None:
    if is_frozen(phases_of(before), now) and not wanted.unfreeze:
        raise ConflictError(
            f"The rules of {benchmark_id} are frozen since "
            f"{moment_words(phases_of(before).freezes_at or now)}; leave freezes_at as it is, or "
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


def freeze_if_due(session: Session, benchmark: Benchmark, folder: Path, now: datetime) -> bool:
    """Freeze a definition if its time has come and no other server has frozen it already."""
    raise_board_version(session, benchmark.benchmark_id)
    row = current_phases(session, benchmark.benchmark_id)
    if row is None or row.frozen_sha256 is not None or not is_frozen(phases_of(row), now):
        return False
    _freeze(session, row, benchmark, folder)
    record(
        session,
        SERVER,
        "benchmark.freeze",
        Subject("benchmark", benchmark.benchmark_id),
        reason=row.reason,
        before=None,
        after={"frozen_sha256": benchmark.sha256, "version": benchmark.version},
    )
    return True


def _freeze(session: Session, row: BenchmarkPhases, benchmark: Benchmark, folder: Path) -> None:
    keep_definition(session, benchmark, folder)
    row.frozen_sha256 = benchmark.sha256
    session.flush()


def admit(session: Session, benchmark: Benchmark, folder: Path, *, archive: bool) -> Admission:
    """Admit a submission scored under this definition, in the transaction that stores it.

    An archive is accepted in every phase and is never under embargo. Raises ConflictError outside
    of the dates, FrozenOtherwiseError if another definition is frozen.
    """
    now = utc_now()
    row = current_dates(session, benchmark.benchmark_id)
    if row is None:
        return Admission(embargoed=False)
    phases = phases_of(row)
    unable = why_not_taken(phases, now, benchmark_id=benchmark.benchmark_id)
    if unable is not None and not archive:
        raise ConflictError(unable)
    if row.frozen_sha256 is None and is_frozen(phases, now):
        freeze_if_due(session, benchmark, folder, now)
        row = current_dates(session, benchmark.benchmark_id) or row
    if row.frozen_sha256 is not None and row.frozen_sha256 != benchmark.sha256:
        raise FrozenOtherwiseError(row.frozen_sha256)
    return Admission(embargoed=is_embargoed(phases, now) and not archive)


def _logged(row: BenchmarkPhases) -> dict[str, Any]:
    return vars(phases_of(row)) | {"frozen_sha256": row.frozen_sha256}
