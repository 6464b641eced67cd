"""Which verdict is published: the first by itself, a later one only by an organiser's decision."""

from datetime import datetime
from typing import Any, Literal

from server.database import utc_now
from server.errors import ConflictError
from server.models import Decision, Submission, Verification

PUBLISH, KEEP = "publish", "keep"
# A training is replayed, and an inference has its latency measured.
KIND_THAT_CHECKS = {"train": "replay", "inference": "latency"}
DecisionWord = Literal["publish", "keep", "pending"]


def checks_claim(verification: Verification, submission: Submission) -> bool:
    """Whether a submission's status follows this verification.

    A duel and the latency of a training say nothing of it, fresh runs measure its pool alone, and
    what was witnessed on its submitter's own machine decides nothing.
    """
    if verification.fresh or verification.witness_token_id is not None:
        return False
    return verification.kind == KIND_THAT_CHECKS[submission.kind]


def published_verification(submission: Submission) -> Verification | None:
    """The verification that a submission's status rests on, None before its first verdict."""
    published = [
        (moment, verification.created_at, verification)
        for verification in submission.verifications
        if (moment := _published_at(verification)) is not None
    ]
    return max(published, key=lambda found: found[:2])[2] if published else None


def _published_at(verification: Verification) -> datetime | None:
    decision = verification.decision
    published = decision is not None and decision.decision == PUBLISH
    return decision.decided_at if decision is not None and published else None


def is_published(verification: Verification) -> bool:
    """Whether a submission's status rests on this verification."""
    submission = verification.submission
    return submission is not None and published_verification(submission) is verification


def published_status(submission: Submission) -> str:
    """The status of a submission that is not being verified: its published verdict, or claimed."""
    found = published_verification(submission)
    return "claimed" if found is None else str(found.outcome)


def pending_verifications(submission: Submission) -> list[Verification]:
    """Verdicts that wait for a decision, oldest first."""
    return [item for item in submission.verifications if is_pending(item, submission)]


def is_pending(verification: Verification, submission: Submission | None) -> bool:
    """Whether a verification of a submission has a verdict about which nothing is decided."""
    judged = verification.state == "done" and verification.decision is None
    return judged and submission is not None and checks_claim(verification, submission)


def settle(submission: Submission, verification: Verification) -> str:
    """The submission's status after a verdict: this one if it is the first, else as published."""
    if published_verification(submission) is None:
        verification.decision = Decision(
            decision=PUBLISH, decided_by=None, reason="first verdict", decided_at=utc_now()
        )
    return published_status(submission)


def decision_word(verification: Verification, submission: Submission | None) -> DecisionWord | None:
    """publish, keep or pending; None for a verification without a verdict."""
    if verification.decision is not None:
        return "publish" if verification.decision.decision == PUBLISH else "keep"
    return "pending" if is_pending(verification, submission) else None


def require_submission(verification: Verification) -> Submission:
    """The submission a verdict is about. Raises ConflictError if there is none to decide about."""
    submission = verification.submission
    if submission is None or not checks_claim(verification, submission):
        raise ConflictError(
            f"Verification {verification.id} is a {verification.kind}: it has no verdict to decide."
        )
    return submission


def require_pending(verification: Verification) -> None:
    """Raise ConflictError unless a decision about a verification is wanted."""
    if verification.state != "done":
        raise ConflictError(
            f"Verification {verification.id} is {verification.state}: it has no verdict to decide."
        )
    decision = verification.decision
    if decision is not None:
        raise ConflictError(
            f"It was decided to {decision.decision} verification {verification.id} "
            f"({decision.reason}); ask for another verification."
        )


def standing(submission: Submission) -> dict[str, Any]:
    """How a submission's row is known."""
    return {"evidence": submission.evidence, "check": submission.check_word}


def publication(submission: Submission) -> dict[str, Any]:
    """What is published about a submission, as the audit log keeps it."""
    found = published_verification(submission)
    return {
        "status": submission.status,
        "verification": found.id if found is not None else None,
    }
