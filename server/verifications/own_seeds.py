"""What is told of trainings of a claim's own seeds: their curve is the claim's."""

from typing import Any

from server.models import Verification
from server.submissions.visibility import sees_runs
from server.viewer import Viewer


def hidden_runs(verification: Verification, viewer: Viewer) -> int:
    """How many of a verification's first runs have a curve that a viewer may not see."""
    claim = verification.submission
    return 0 if claim is None or sees_runs(viewer, claim) else verification.own_runs


def without_quality(event: dict[str, Any], hidden: int) -> dict[str, Any]:
    """An event as it is told: one of the first `hidden` runs without its quality."""
    return event | {"quality": None} if event["run"] < hidden and "quality" in event else event
