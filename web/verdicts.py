"""What the verification of a submission established, in words for a badge or a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from finishline.rules.ranking.evidence import evidence_words
from web.formats import number

View = Mapping[str, Any]


def published_check(submission: View, checks: Sequence[View]) -> View | None:
    """The verification that a submission's status rests on, of those that are shown."""
    published = submission.get("published_verification")
    return next((check for check in checks if check["id"] == published), None)


def why_not_timed(check: View | None) -> str:
    """Why a verification did not compare the claimed time, as its reason says."""
    messages = (str(reason["message"]) for reason in (check or {}).get("reasons", ()))
    untimed = (message for message in messages if message.startswith("time was not compared: "))
    return next(untimed, "its time was not compared")


def standing_words(submission: View) -> str:
    """The evidence of a submission with its check, or that it was withdrawn."""
    return "withdrawn" if submission.get("withdrawal") else evidence_words(submission)


def reads_between_evaluations(check: View, submission: View) -> bool:
    """Whether a verdict tells other epochs of a claim than the submission's own page does."""
    whole = submission["result"].get("epochs_to_target")  # Inference has none.
    numbers = (reason.get("numbers") or {} for reason in check["reasons"])
    read_off = (known.get("claimed_mean_epochs") for known in numbers)
    return whole is not None and any(
        epochs is not None and number(epochs, 3) != number(whole, 3) for epochs in read_off
    )
