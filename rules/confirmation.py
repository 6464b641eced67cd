"""Fresh runs: which measured configurations are trained again before they stand at the top."""

from collections.abc import Sequence

FIRST = 3
# The states of a pool that waits for its fresh runs.
HELD_BACK = ("confirming", "unconfirmed")


def why_fresh_runs(
    seconds: float, *, others: Sequence[float], record_seconds: float | None
) -> str | None:
    """Why a configuration of this measured time is trained again first, or None if it is not.

    `others` has the measured times of the other configurations of its division, `record_seconds`
    that of the one that holds the record. The best of many pools of three runs is partly luck, and
    luck does not last for ten more. Among three configurations or fewer everybody is in the first
    three: there only a record asks for fresh runs.
    """
    faster = sum(other < seconds for other in others)
    if len(others) >= FIRST and faster < FIRST:
        return "would enter the first three"
    if record_seconds is not None and seconds < record_seconds:
        return "would take the record"
    return None


def why_held_back(pool_state: str | None, *, runs: int) -> str | None:
    """Why a measured row has no number yet, or None if nothing holds it back."""
    if pool_state == "confirming":
        return f"its {runs} fresh runs are under way"
    if pool_state == "unconfirmed":
        return f"its {runs} fresh runs were not finished"
    return None
