"""A verdict in words: for a badge, and as four checks."""

from collections.abc import Mapping
from typing import Any

from finishline.rules.ranking import evidence_words
from web.formats import number
from web.progress import claims_nothing

View = Mapping[str, Any]


def why_not_timed(check: View | None) -> str:
    """Why a verification did not compare the claimed time, as its reason says."""
    messages = (str(reason["message"]) for reason in (check or {}).get("reasons", ()))
    untimed = (message for message in messages if message.startswith("time was not compared: "))
    return next(untimed, "its time was not compared")


def standing_words(submission: View) -> str:
    """The evidence of a submission with its check, or that it was withdrawn."""
    return "withdrawn" if submission["withdrawal"] else evidence_words(submission)


def reads_between_evaluations(check: View, submission: View) -> bool:
    """Whether a verdict has other epochs of a claim than the submission's own page."""
    whole = submission["result"].get("epochs_to_target")  # Inference has none.
    numbers = (reason["numbers"] for reason in check["reasons"])
    read_off = (known.get("claimed_mean_epochs") for known in numbers)
    return whole is not None and any(
        epochs is not None and number(epochs, 3) != number(whole, 3) for epochs in read_off
    )


CHECKS = {
    "Reached the target": ("reached_target", "did_not_reach", "below_entropy"),
    "Learned like the reference": (
        *("within_band", "below_band", "above_band"),
        *("curve_reproduced", "curve_not_reproduced"),
    ),
    "Same number of epochs": ("convergence_agrees", "converges_faster_than_replay"),
    "Speed as claimed": (
        *("time_agrees", "slower_than_claimed", "hardware_differs", "worker_drifted"),
        *("time_not_compared", "quality_compared", "claim_has_no_time"),
    ),
}
# The heaviest weight speaks for a check.
HEAVIEST = ("rejects", "leaves_open", "supports", "note")


def verdict_checks(
    verification: View, submission: View | None = None
) -> list[tuple[str, View | None]]:
    """The four checks of a claim by a replay, each with its heaviest reason. None without one.

    Of the reference, which claims nothing, there are two.
    """
    if verification["kind"] != "replay" or not verification["outcome"]:
        return []
    found = [
        (
            name,
            min(
                (reason for reason in verification["reasons"] if reason["code"] in codes),
                key=lambda reason: HEAVIEST.index(reason["weight"]),
                default=None,
            ),
        )
        for name, codes in CHECKS.items()
    ]
    return found[: 2 if claims_nothing(submission) else 4]
