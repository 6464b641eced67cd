"""Challenge the holder of a record with one's own package, at the cost of one's own quota.

A challenge is the duel of ten pairs that decides about a record, asked for by a submitter.
"""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from finishline.api.duels import ChallengeCreate, ChallengeView, DuelCreate
from finishline.rules.ranking.records import ONE_OWNER, Contender
from finishline.rules.verification.duel import RECORD_PAIRS
from server.base.errors import (
    ConflictError,
    ContentError,
    NotAllowedError,
    ServerError,
    no_such,
)
from server.base.events import RecordChallenged, emit
from server.base.models import Pool, Submission, Verification
from server.base.models.visibility import may_see
from server.base.settings import Settings
from server.base.standing import kind_that_checks, verification_under_way
from server.people.audit import Subject, record
from server.people.dependencies import Caller
from server.people.signed_in import viewer_for
from server.submissions.quotas import (
    NOTHING_KEPT,
    lock_user,
    require_room_for_seconds,
    seconds_left,
)
from server.submissions.service import find_submission
from server.verifications.duels import (
    cost_of_duel,
    holder_among,
    open_challenge,
    refuse_another_challenge,
    request_duel,
    require_comparable,
)
from server.verifications.record_candidates import contenders


def challenge(
    session: Session,
    settings: Settings,
    caller: Caller,
    submission_id: str,
    wanted: ChallengeCreate,
) -> Verification:
    """Challenge the record with a submission of the caller's; written to the audit log.

    Raises NotFoundError, NotAllowedError for another user's, ContentError for two that no duel can
    compare, ConflictError where the record cannot be challenged at the moment, and UsedUpError or
    NotAllowedError if the quota has no room for it. Organisers have no quota.
    """
    challenger = _own(session, caller, submission_id)
    # First of all the user's lock, so that of two requests at once one sees the other.
    lock_user(session, caller.user_id)
    found = _measured(session, challenger)
    holder = _holder_for(session, caller, challenger, holder_among(found), named=wanted.holder)
    _require_chance(session, found, challenger, holder)
    benchmark = require_comparable(session, challenger, holder)
    cost = cost_of_duel(session, benchmark, (challenger, holder), pairs=RECORD_PAIRS)
    if not caller.is_organiser:
        require_room_for_seconds(session, settings, cost.device_seconds, user_id=caller.user_id)
    body = DuelCreate(
        challenger=challenger.id, holder=holder.id, pairs=RECORD_PAIRS, reason=wanted.reason
    )
    duel = request_duel(session, body, requested_by=caller.user_id)
    duel.gpu_seconds_reserved = cost.device_seconds
    emit(session, RecordChallenged(duel, holder))
    record(
        session,
        caller,
        "record.challenge",
        Subject("verification", duel.id),
        reason=wanted.reason,
        before=None,
        after={
            "challenger": challenger.id,
            "holder": holder.id,
            "seal": duel.seal,
            "gpu_seconds_reserved": cost.device_seconds,
        },
    )
    session.flush()
    return duel


def preview_challenge(
    session: Session, settings: Settings, caller: Caller, submission_id: str
) -> ChallengeView:
    """Cost of a challenge and the quota left, or why it is refused; reads without a lock.

    Raises NotFoundError, and NotAllowedError for another user's submission.
    """
    challenger = _own(session, caller, submission_id)
    holder, cost, under_way, refused = None, None, None, None
    try:
        found = _measured(session, challenger)
        holder = _holder_for(session, caller, challenger, holder_among(found), named=None)
        _require_chance(session, found, challenger, holder)
        benchmark = require_comparable(session, challenger, holder)
        cost = cost_of_duel(session, benchmark, (challenger, holder), pairs=RECORD_PAIRS)
        under_way = open_challenge(session, str(holder.pool_id))
        refuse_another_challenge(session, challenger, str(holder.pool_id))
        if not caller.is_organiser:
            require_room_for_seconds(
                session, settings, cost.device_seconds, user_id=caller.user_id, lock=False
            )
    except ServerError as error:
        refused = f"{error.detail.removesuffix(NOTHING_KEPT).removesuffix('.')}."
    left = None
    if not caller.is_organiser:
        left = seconds_left(session, settings, caller.user_id)
    return ChallengeView(
        challenger=challenger.id,
        holder=None if holder is None else holder.id,
        division=challenger.division,
        challenger_seconds=_measured_seconds(session, challenger),
        holder_seconds=None if holder is None else _measured_seconds(session, holder),
        pairs=RECORD_PAIRS,
        runs=2 * RECORD_PAIRS,
        device_seconds=None if cost is None else cost.device_seconds,
        basis=[] if cost is None else list(cost.basis),
        quota_seconds_left=left,
        open_challenge=under_way,
        refused=refused,
    )


def is_theirs(holder: Submission, challenger: Submission) -> bool:
    """Whether a challenger's own user, or its own configuration, holds the record."""
    return holder.user_id == challenger.user_id or holder.pool_id == challenger.pool_id


def _own(session: Session, caller: Caller, submission_id: str) -> Submission:
    submission = find_submission(session, submission_id)
    if submission.user_id == caller.user_id:
        return submission
    if not may_see(viewer_for(caller), submission):
        raise no_such("submission", submission_id)
    raise NotAllowedError(
        "This submission belongs to another user: only they can challenge a record with it. "
        "Challenge with an entry of your own."
    )


def _holder_for(
    session: Session,
    caller: Caller,
    challenger: Submission,
    found: Contender | None,
    *,
    named: str | None,
) -> Submission:
    """Submission that holds the record of the challenger's division, and is not its submitter's.

    Raises ContentError for a challenger without a package or a named one of another division,
    ConflictError where nobody or somebody else than the named one holds it.
    """
    if challenger.trained_with != "package":
        raise ContentError(
            f"Submission {challenger.id} is a claim with run logs, and only a package challenges a "
            "record. Send its training as a package (finishline training submit) and challenge "
            "with that."
        )
    board = f"the {challenger.division} division of {challenger.benchmark_id}"
    if named is not None and (found is None or named != found.submission_id):
        other = find_submission(session, named)
        if (other.benchmark_id, other.division) != (challenger.benchmark_id, challenger.division):
            raise ContentError(
                f"Submission {named} is in the {other.division} division of {other.benchmark_id}, "
                f"yours in {board}: expected the holder of your own division's record. Leave the "
                "holder out."
            )
    if found is None:
        raise ConflictError(
            f"Nobody holds the record of {board}: the first measured configuration takes it. Have "
            "yours measured."
        )
    holder = session.get_one(Submission, found.submission_id)
    if not may_see(viewer_for(caller), holder):
        raise ConflictError(
            f"The record of {board} is under embargo. Challenge it when the embargo has ended."
        )
    if named is not None and named != holder.id:
        raise ConflictError(
            f"Submission {named} does not hold the record of {board}, {holder.id} does. "
            "Look at the cost of that challenge and ask for it."
        )
    if is_theirs(holder, challenger):
        raise ContentError(
            f"You hold this record yourself, with submission {holder.id}. An organiser can request "
            "a duel of two entries of one submitter."
        )
    return holder


def _require_chance(
    session: Session, found: Sequence[Contender], challenger: Submission, holder: Submission
) -> None:
    """Raise ServerError for a challenger that a duel could not give the record."""
    mine, theirs = (
        next((one for one in found if one.pool == side.pool_id), None)
        for side in (challenger, holder)
    )
    if mine is None or mine.tta_seconds is None:
        raise ConflictError(_why_not_measured(session, challenger))
    if theirs is None or theirs.tta_seconds is None:
        raise ConflictError(f"The record's holder {holder.id} is being measured again. Ask later.")
    classes = [one.system["hardware_class"] for one in (challenger, holder)]
    if classes[0] != classes[1]:
        raise ContentError(
            f"Your entry was measured on {classes[0]}, the record on {classes[1]}: times do not "
            "compare in a duel. Hand the package in for that class (finishline training submit "
            f"--hardware-class {classes[1]}) and challenge with that entry. Between two classes "
            "the fresh runs alone decide."
        )
    if mine.tta_seconds >= theirs.tta_seconds:
        raise ConflictError(
            f"Your entry was measured at {mine.tta_seconds:.4g} s, the record is "
            f"{theirs.tta_seconds:.4g} s: a record falls to a lower time only. Submit a faster "
            "package."
        )
    if not mine.attested:
        raise ConflictError(
            f"Your entry was {ONE_OWNER}. Have it measured again: finishline training run-again "
            f"{challenger.id}"
        )
    if not mine.fresh:
        raise ConflictError(
            "Your entry has no fresh runs, which a record needs. An organiser can request them."
        )


def _measured(session: Session, submission: Submission) -> Sequence[Contender]:
    """Measured configurations of a submission's division that rank."""
    return contenders(session, submission.benchmark_id).get((submission.division, "measured"), ())


def _why_not_measured(session: Session, submission: Submission) -> str:
    if submission.withdrawn_at is not None:
        return f"Submission {submission.id} is withdrawn and cannot challenge a record."
    if not submission.eligible:
        return (
            f"Submission {submission.id} breaks a rule and does not rank, so it takes no record: "
            f"its page says which (/submissions/{submission.id})."
        )
    under_way = verification_under_way(session, submission.id, kind=kind_that_checks(submission))
    told = f"Submission {submission.id} has no measured time that ranks yet"
    if under_way is not None:
        return (
            f"{told}: challenge the record once its runs have ended (/verifications/{under_way})."
        )
    pool = None if submission.pool_id is None else session.get(Pool, submission.pool_id)
    if pool is not None and pool.state == "waiting":
        return f"{told}: the fresh runs of faster ones are under way."
    if pool is not None and pool.state == "unconfirmed":
        return f"{told}: its fresh runs were not finished. An organiser can request them again."
    return f"{told}. Have it measured: finishline training run-again {submission.id}"


def _measured_seconds(session: Session, submission: Submission) -> float | None:
    pool = None if submission.pool_id is None else session.get(Pool, submission.pool_id)
    return None if pool is None else pool.measured_seconds
