"""A code submission in words: the trust in its board, the end of its measurement."""

from collections.abc import Mapping, Sequence
from typing import Any

from finishline.rules.verification.purposes import is_in_box

View = Mapping[str, Any]
OUTCOMES = {"verified": "measured", "rejected": "not measured", "inconclusive": "not measured"}
DECIDING = ("rejects", "leaves_open")


def trust_words(trainings: View | None, benchmark: View) -> str | None:
    """One sentence on the answers of a benchmark, by its `[trainings]`; None where it has none."""
    if trainings is None:
        return None
    if trainings["trust"] == "demonstration":
        return (
            f"The answers of {benchmark['title']} are public, so code can carry them: its "
            "times are a demonstration."
        )
    return (
        f"{benchmark['data_set']['name']}: the draw comes after code is handed in, so no "
        "code can carry the answers."
    )


DETERMINISM = {
    "shown": "shown: a repeated run gave equal predictions",
    "struck": "struck: a repeated run gave other predictions",
    "not checked": "as stated, not checked",
    None: "not stated",
}


def determinism_words(package: View) -> str:
    """Whether equal seeds and data give equal predictions, and how that is known."""
    return DETERMINISM[package["determinism"]]


def outcome_word(verification: View) -> str:
    """The word for a verification's outcome, or for its state before there is one."""
    outcome = verification["outcome"]
    if outcome is None:
        return str(verification["state"])
    return OUTCOMES[outcome] if is_in_box(verification["kind"]) else str(outcome)


def says_code(verification: View, reason: View) -> bool:
    """Whether a reason's code is shown: one that names a replay says nothing of an entry."""
    return not (is_in_box(str(verification.get("kind"))) and reason["code"].startswith("replay"))


def why_not_measured(checks: Sequence[View]) -> str:
    """Why an entry has no measured time: of its latest measurement, the reason that decided it."""
    latest = next((check for check in checks if check["kind"] == "entry"), None)
    if latest is None:
        return "no measurement was asked for."
    if latest["state"] == "cancelled":
        return "its measurement was cancelled."
    reasons = latest["reasons"]
    found = [reason["message"] for reason in reasons if reason["weight"] in DECIDING]
    found += [a["failure"]["message"] for a in reversed(latest["attempts"]) if a["failure"]]
    return f"{found[0].rstrip('.')}." if found else "its measurement has no verdict."
