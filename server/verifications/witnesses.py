"""Witnessed verifications: our worker on the submitter's own machine, for one submission.

Its owner has root there, so nothing of it is measured, ranked or rejected.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from finishline.rules.verification.verdict import Reason
from server.base.database import utc_now
from server.base.errors import ConflictError
from server.base.models import Verification
from server.people.accounts import SCOPES_OF, NewToken, add_token, record_new_token
from server.people.audit import Subject, record
from server.people.dependencies import Caller
from server.people.token_issue import require_maker
from server.submissions.service import find_submission
from server.verifications.service import request_verification

SERVES_FOR = timedelta(hours=24)
TOKEN_ENDED = Reason(
    "witnessed", "leaves_open", "the witness's token ended before a worker took this"
)


@dataclass(frozen=True)
class Witness:
    """Token of a witness and the verification that it was made for."""

    made: NewToken
    verification: Verification


def make_witness_token(
    session: Session, caller: Caller, submission_id: str, *, reason: str | None
) -> Witness:
    """Make a token for the worker on a submitter's machine, and queue its verification.

    Raises NotFoundError, ConflictError for an organiser's own submission, an archive's or one that
    is being witnessed, ContentError if the reference cannot replay it.
    """
    require_maker(session, caller.token_id)
    submission = find_submission(session, submission_id)
    if submission.user_id == caller.user_id:
        raise ConflictError("This submission is your own: another organiser has to witness it.")
    if submission.published is not None or submission.user.disabled_at is not None:
        raise ConflictError("Nobody can run a worker for it: its submitter has no account here.")
    made = add_token(
        session,
        submission.user,
        role="worker",
        scopes=SCOPES_OF["worker"],
        expires_at=utc_now() + SERVES_FOR,
        label=f"witness of {submission_id}",
        made_with=caller.token_id,
        submission_id=submission_id,
    )
    verification = request_verification(
        session,
        submission,
        requested_by=caller.user_id,
        reason=reason,
        witness_token_id=made.token.id,
    )
    record_new_token(session, caller, made.token)
    record(
        session,
        caller,
        "submission.witness",
        Subject("submission", submission_id),
        reason=reason,
        before=None,
        after={
            "token": made.token.id,
            "expires_at": made.token.expires_at,
            "verification": verification.id,
            "consequence": f"if its epochs agree the row says claimed, witnessed by {caller.name}; "
            "no time is measured, nothing is rejected and no record is set",
        },
    )
    return Witness(made, verification)
