"""What the verification of a submission established, in words a badge and a page can bear."""

from collections.abc import Mapping, Sequence
from typing import Any

from rules.confirmed_time import time_confirmed
from rules.evidence_words import evidence_words
from rules.verdict import ReasonCode
from web.formats import number

View = Mapping[str, Any]
# Why a verdict says nothing about the time: each is a reason without weight.
WITHOUT_TIME: tuple[ReasonCode, ...] = (
    "hardware_differs",
    "noisy_host",
    "worker_drifted",
    "time_not_compared",
    "claim_has_no_time",
)
WITHOUT_LATENCY: tuple[ReasonCode, ...] = ("latency_not_compared", "claim_has_no_latency")
_PREFIX = "time was not compared: "


def published_check(submission: View, checks: Sequence[View]) -> View | None:
    """The verification that a submission's status rests on, of those that are shown."""
    published = submission.get("published_verification")
    return next((check for check in checks if check["id"] == published), None)


def is_convergence_only(check: View | None) -> bool:
    """Whether a verification verified that the training converges, and not how long it takes."""
    if check is None:
        return False
    return time_confirmed(check["kind"], check["outcome"], check["reasons"]) is False


def scope_sentence(check: View | None) -> str | None:
    """What a published verification checked and what it could not, in a sentence or two."""
    if check is None or check["outcome"] is None:
        return None
    if check["kind"] == "replay" and check["outcome"] == "verified":
        if not is_convergence_only(check):
            return "Convergence and time were both checked, on hardware of the claimed class."
        unconfirmed, why = _message(check, ("time_agrees",)), _message(check, WITHOUT_TIME)
        stands = "The time stands as claimed"
        if unconfirmed:
            stands = f"{stands} and is not confirmed: {unconfirmed}"
        elif why:
            stands = f"{stands}, because {why}"
        return (
            "Only convergence was verified: the reference reached the target as the claim says. "
            f"{stands}."
        )
    if check["kind"] == "latency" and (why := _message(check, WITHOUT_LATENCY)):
        return f"The latency stands as claimed: {why}."
    return None


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


def _message(check: View, codes: Sequence[str]) -> str | None:
    found = (reason["message"] for reason in check["reasons"] if reason["code"] in codes)
    message = next(found, None)
    return message.removeprefix(_PREFIX) if message is not None else None
