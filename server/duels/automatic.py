"""The duel for a record, queued where fresh runs beat the holder's time."""

from sqlalchemy.orm import Session

from finishline.rules.ranking.records import may_duel
from finishline.rules.verification.duel import RECORD_PAIRS
from server.boards.contenders import contenders
from server.duels.challenges import record_holder
from server.duels.schemas import DuelCreate
from server.duels.service import request_duel
from server.errors import ServerError
from server.models import Pool, Verification


def challenge_record(session: Session, fresh: Verification) -> None:
    """Queue the duel with the record's holder, if fresh runs beat its time and both may have one.

    While the record is challenged by somebody else none is queued: an organiser asks for it later.
    """
    pool = None if fresh.pool_id is None else session.get(Pool, fresh.pool_id)
    if not fresh.fresh or pool is None or pool.state != "measured":
        return
    holder = record_holder(session, pool.benchmark_id, pool.division)
    found = contenders(session, pool.benchmark_id).get((pool.division, "measured"), ())
    challenger = next((one for one in found if one.pool == pool.id), None)
    if holder is None or challenger is None or holder.pool == pool.id:
        return
    if challenger.tta_seconds is None or holder.tta_seconds is None:
        return
    if challenger.tta_seconds >= holder.tta_seconds or not may_duel(challenger, holder):
        return
    wanted = DuelCreate(
        challenger=challenger.submission_id,
        holder=holder.submission_id,
        pairs=RECORD_PAIRS,
        reason="record: its fresh runs beat the holder's time",
    )
    try:
        request_duel(session, wanted, requested_by=fresh.requested_by)
    except ServerError:  # The record is challenged already, or one was withdrawn meanwhile.
        return
