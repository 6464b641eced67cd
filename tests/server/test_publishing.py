"""Which of several verdicts a submission's status rests on."""

from datetime import UTC, datetime, timedelta

import pytest

from server.base.models import Decision, Submission, Verification
from server.base.standing import (
    decision_word,
    is_published,
    pending_verifications,
    published_status,
    published_verification,
    settle,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def judged(outcome: str, *, asked: int, kind: str = "replay") -> Verification:
    """A verdict about which nothing is decided; times are days after the first."""
    return Verification(
        id=f"{outcome}-{asked}", kind=kind, state="done", outcome=outcome, reasons=[],
        created_at=START + timedelta(days=asked), decision=None,
    )  # fmt: skip


def decided(found: Verification, word: str, *, at: int) -> Verification:
    found.decision = Decision(
        decision=word, decided_by=None, reason="x", decided_at=START + timedelta(days=at)
    )
    return found


def submission_of(*verifications: Verification, kind: str = "train") -> Submission:
    return Submission(kind=kind, status="claimed", verifications=list(verifications))


def test_the_verdict_that_was_published_last_counts_whenever_it_was_asked_for() -> None:
    first = decided(judged("verified", asked=0), "publish", at=5)
    second = decided(judged("rejected", asked=1), "publish", at=4)
    submission = submission_of(first, second)
    assert published_verification(submission) is first
    assert (is_published(first), is_published(second)) == (True, False)
    assert published_status(submission) == "verified"
    # Of two that were published at once the one that was asked for later.
    decided(second, "publish", at=5)
    assert published_status(submission_of(second, first)) == "rejected"


def test_a_verdict_that_is_kept_back_changes_nothing() -> None:
    first = decided(judged("verified", asked=0), "publish", at=1)
    kept = decided(judged("rejected", asked=2), "keep", at=3)
    submission = submission_of(first, kept)
    assert published_status(submission) == "verified"
    assert [decision_word(one, submission) for one in (first, kept)] == ["publish", "keep"]
    assert published_status(submission_of(kept)) == "claimed"


def test_a_first_verdict_is_published_by_itself_and_a_later_one_waits() -> None:
    first, later = judged("verified", asked=0), judged("rejected", asked=1)
    submission = submission_of(first, later)
    assert settle(submission, first) == "verified"
    assert settle(submission, later) == "verified"
    assert pending_verifications(submission) == [later]
    assert (later.decision, decision_word(later, submission)) == (None, "pending")


@pytest.mark.parametrize(
    ("kind", "verification", "waits"),
    [
        ("train", "replay", True),
        ("train", "latency", False),
        ("train", "duel", False),
        ("inference", "latency", True),
        ("inference", "replay", False),
    ],
)
def test_only_what_checks_the_claim_waits_for_a_decision(
    kind: str, verification: str, waits: bool
) -> None:
    found = judged("rejected", asked=0, kind=verification)
    submission = submission_of(found, kind=kind)
    assert (pending_verifications(submission) == [found]) is waits
    assert decision_word(found, submission) == ("pending" if waits else None)
