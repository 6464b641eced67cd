"""Challenges of a record: one at a time, and a lost one again after thirty days."""

from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased, undefer

from finishline.rules.ranking.records import DUEL_ALPHA, Contender, measured_history
from finishline.rules.verification.duel import RECORD_PAIRS
from server.board_versions import raise_board_version
from server.boards.contenders import contenders, p_of_record_duel
from server.database import utc_now
from server.errors import ConflictError
from server.models import Submission, Verification
from server.verifications.queries import OPEN

AGAIN_AFTER = timedelta(days=30)


def record_holder(session: Session, benchmark_id: str, division: str) -> Contender | None:
    """The measured configuration that holds the record of a division; None before the first."""
    found = contenders(session, benchmark_id).get((division, "measured"), ())
    records = measured_history(found).records
    return next((one for one in found if records and one.pool == records[-1].pool), None)


def require_open_record(session: Session, challenger: Submission, holder: Submission) -> None:
    """Raise ConflictError while a record is challenged, or for 30 days after a lost challenge.

    A duel of ten pairs against the pool that holds the record is a challenge of it; no other is.
    """
    # The board's row is locked by this, so that of two challenges one sees the other.
    raise_board_version(session, holder.benchmark_id)
    record = record_holder(session, holder.benchmark_id, holder.division)
    if record is None or record.pool is None or holder.pool_id != record.pool:
        return
    for duel, pool_id in _challenges(session, record.pool):
        if duel.state in OPEN:
            raise ConflictError(
                f"Duel {duel.id} challenges this record since {duel.created_at:%Y-%m-%d}: one "
                "challenge of a record is open at a time. Wait for it."
            )
        p_value = p_of_record_duel(duel) if duel.state == "done" else None
        if pool_id != challenger.pool_id or p_value is None or duel.ended_at is None:
            continue
        again = duel.ended_at + AGAIN_AFTER
        if p_value >= DUEL_ALPHA and utc_now() < again:
            raise ConflictError(
                f"Duel {duel.id} for this record was lost on {duel.ended_at:%Y-%m-%d}: ask again "
                f"from {again:%Y-%m-%d} on."
            )


def _challenges(session: Session, pool_id: str) -> list[tuple[Verification, str | None]]:
    """The duels of ten pairs against a pool, and the pool of each challenger."""
    challenger, holder = aliased(Submission), aliased(Submission)
    statement = (
        select(Verification, challenger.pool_id)
        .join(challenger, challenger.id == Verification.submission_id)
        .join(holder, holder.id == Verification.against_id)
        .where(Verification.kind == "duel", holder.pool_id == pool_id)
        .options(undefer(Verification.reasons))
        .order_by(Verification.created_at)
    )
    return [
        (duel, challenging)
        for duel, challenging in session.execute(statement)
        if duel.runs == 2 * RECORD_PAIRS
    ]
