"""Whether a verdict confirms the claimed time, or the convergence of the training alone."""

from collections.abc import Iterable, Mapping
from typing import Any


def time_confirmed(
    kind: str, outcome: str | None, reasons: Iterable[Mapping[str, Any]]
) -> bool | None:
    """Whether the replays of a verified claim took the claimed time, within the tolerance.

    False where the time was not compared, or compared and not confirmed: then convergence alone is
    verified. None of any other outcome, and of a verification that replays no training. `reasons`
    are as they are stored, `rules.verdict.Reason` as tables.
    """
    if kind != "replay" or outcome != "verified":
        return None
    return any(_confirms(reason) for reason in reasons)


def _confirms(reason: Mapping[str, Any]) -> bool:
    """Whether a finding says that the time is within the tolerance.

    Where replays scatter, a claim may be far beyond it and still not beyond chance: that takes
    nothing from the claim, and gives it nothing.
    """
    numbers = reason.get("numbers") or {}
    within: bool = numbers.get("ratio", 0.0) <= numbers.get("tolerated_ratio", 0.0)
    return reason["code"] == "time_agrees" and within
