"""States of a verification and of its attempts. Only `move` writes them.

| from | event | to | by |
|---|---|---|---|
| | request | queued | a person, a policy, a board that is settled |
| queued | lease | running | a worker |
| running | retry | queued | a lost worker or a refused report, while attempts are left |
| running | report | done | the report |
| running | check | checking | the report, if an independent rerun was drawn |
| checking | conclude | done | the rerun, or ten minutes of waiting for a worker |
| checking | refute | queued | a rerun: two owners contradict the worker, which is paused |
| running | fail | failed | the report, a limit of time, the last attempt that was lost |
| queued | expire | failed | seven days of waiting for a worker |
| queued, checking | cancel | cancelled | an organiser |

A running comparison or calibration may be cancelled. A withdrawal cancels queued jobs and
head-to-heads. Runs that wait for their rerun count, or an unlucky submission would be withdrawn and
submitted again. A verification that one owner contradicts stays checking, and a third owner is
drawn. The attempts:

| from | event | to | by |
|---|---|---|---|
| | request | queued | its verification |
| queued | lease | running | the worker that was drawn |
| running | report | done | the report |
| running | fail | failed | the report, a limit of time |
| running | lose | lost | a lease that ran out |
| done | refute | lost | two other owners |
| queued | expire | cancelled | waiting too long for a worker |
| queued, running | cancel | cancelled | its verification |
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from sqlalchemy import ColumnElement, update
from sqlalchemy.orm import Session

from finishline.rules.verification.verdict import Reason, Verdict
from server.base.database import utc_now
from server.base.errors import ConflictError
from server.base.events import VerificationChanged, VerificationMoment, emit
from server.base.models import Attempt, Verification
from server.base.standing import OPEN, purpose_of

Event = Literal[
    "request",
    "lease",
    "retry",
    "report",
    "check",
    "conclude",
    "refute",
    "fail",
    "lose",
    "expire",
    "cancel",
]
Table = Mapping[tuple[str | None, Event], str]
EVIDENCE: Table = {
    (None, "request"): "queued",
    ("queued", "lease"): "running",
    ("running", "retry"): "queued",
    ("running", "report"): "done",
    ("running", "check"): "checking",
    ("checking", "conclude"): "done",
    ("checking", "refute"): "queued",
    ("running", "fail"): "failed",
    ("queued", "expire"): "failed",
    ("queued", "cancel"): "cancelled",
    ("checking", "cancel"): "cancelled",
}
OTHERS: Table = {**EVIDENCE, ("running", "cancel"): "cancelled"}
ATTEMPTS: Table = {
    (None, "request"): "queued",
    ("queued", "lease"): "running",
    ("running", "report"): "done",
    ("running", "fail"): "failed",
    ("running", "lose"): "lost",
    ("done", "refute"): "lost",
    ("queued", "expire"): "cancelled",
    ("queued", "cancel"): "cancelled",
    ("running", "cancel"): "cancelled",
}
MOMENTS: dict[str, VerificationMoment] = {
    "queued": "queued",
    "running": "started",
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}
HINTS = {
    "lease": "Leave it.",
    "report": "Stop this replay.",
    "fail": "Stop this replay.",
    "cancel": "A replay that runs ends by itself. Withdraw the submission to hide it.",
}


class StateError(ConflictError):
    """An event has to start from another state."""


def move(
    session: Session,
    row: Verification | Attempt,
    event: Event,
    *conditions: ColumnElement[bool],
    **changes: Any,
) -> None:
    """Move a verification or an attempt, with other columns that change with its state.

    One UPDATE decides: the later of two transactions gets a StateError. So does an event outside
    the table, or an event with unmet `conditions`. A new row is added.
    """
    table = _table_of(row)
    before, after = row.state, table.get((row.state, event))
    if after is None:
        raise _refusal(row, event)
    if before in OPEN and after not in OPEN:
        changes["ended_at"] = utc_now()
    if before is None:
        row.state = after
        session.add(row)
    else:
        kind: Any = type(row)
        moved = session.execute(
            update(kind)
            .where(kind.id == row.id, kind.state == before, *conditions)
            .values(state=after, **changes)
            .returning(kind.id)
            .execution_options(synchronize_session="fetch")
        ).first()
        if moved is None:
            session.refresh(row, ["state"])
            raise _refusal(row, event)
    if isinstance(row, Attempt) or after == "checking":
        return
    if after == "cancelled":
        for attempt in row.attempts:
            if attempt.state in OPEN:
                move(session, attempt, "cancel")
    latest = row.attempts[-1] if after in OPEN else None
    emit(session, VerificationChanged(row, MOMENTS[after], latest))


def end(
    session: Session,
    verification: Verification,
    event: Event,
    verdict: Verdict | None = None,
    *,
    why: Reason | None = None,
) -> None:
    """End a verification with a verdict, or a calibration without one. `why` leaves it open."""
    verdict = verdict or Verdict("inconclusive", ())
    outcome = "inconclusive" if why is not None else verdict.outcome
    reasons = [asdict(each) for each in (*verdict.reasons, why) if each is not None]
    is_about_claim = verification.submission is not None
    move(session, verification, event, outcome=outcome if is_about_claim else None, reasons=reasons)


def _table_of(row: Verification | Attempt) -> Table:
    if isinstance(row, Attempt):
        return ATTEMPTS
    return EVIDENCE if purpose_of(row).track == "evidence" else OTHERS


def _refusal(row: Verification | Attempt, event: Event) -> StateError:
    wanted = [source or "new" for source, name in _table_of(row) if name == event]
    detail = f"{type(row).__name__} {row.id} is {row.state}. To {event} it, it has to be "
    return StateError(f"{detail}{' or '.join(wanted)}.", hint=HINTS.get(event))
