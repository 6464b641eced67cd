"""Which verification the status of each submission of a board rests on."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from finishline.rules.submissions.claim import Kind
from server.models import Decision, Submission, Verification
from server.standing import KIND_THAT_CHECKS, PUBLISH

UNDER_WAY = ("queued", "running")


def verifications_behind(
    session: Session, which: Sequence[ColumnElement[bool]], kind: Kind
) -> dict[str, str]:
    """The verification published last, or the one under way while a claim waits for its first.

    A submission that nobody verifies is left out.
    """
    statement = (
        select(Verification.submission_id, Verification.id, Decision.decided_at, Submission.status)
        .join(Submission, Submission.id == Verification.submission_id)
        .outerjoin(Decision, Decision.verification_id == Verification.id)
        .where(
            *which,
            Verification.kind == KIND_THAT_CHECKS[kind],
            (Decision.decision == PUBLISH) | Verification.state.in_(UNDER_WAY),
        )
        .order_by(Decision.decided_at, Verification.created_at)
    )
    found: dict[str, str] = {}
    for submission_id, verification_id, decided_at, status in session.execute(statement):
        if (decided_at is None) == (status == "verifying") and submission_id is not None:
            found[submission_id] = verification_id
    return found
