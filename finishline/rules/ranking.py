"""Rank boards: the evidence for a time in words, and figures with their limits."""

from collections.abc import Mapping
from typing import Any, Literal

from finishline.rules.benchmarks.prices import HIGHEST_USD_PER_HOUR
from finishline.rules.benchmarks.quality import LARGEST_QUALITY
from finishline.rules.logs.dawnbench import (
    HIGHEST_COST_USD,
    LONGEST_LATENCY_MS,
    SHORTEST_LATENCY_MS,
)
from finishline.rules.statistics.aggregate import LONGEST_SECONDS, SHORTEST_SECONDS
from finishline.rules.submissions.claim import MOST_INSTANCES, Kind

Metric = Literal["tta", "quality", "cost", "energy", "latency", "inference_cost"]
# A board ranks submissions of one kind, because a training and an inference differ in all figures.
KIND_OF_METRIC: dict[Metric, Kind] = {
    "tta": "train",
    "quality": "train",
    "cost": "train",
    "energy": "train",
    "latency": "inference",
    "inference_cost": "inference",
}
# Limits of figures in a submission or its logs, each included. A claim beyond them is refused.
# Older stored and published submissions may have any figure. Joules: a megawatt for the longest
# time of a run.
MOST_JOULES = 1e6 * LONGEST_SECONDS
POSSIBLE: dict[str, tuple[float, float]] = {
    "tta_seconds": (SHORTEST_SECONDS, LONGEST_SECONDS),
    "quality": (-LARGEST_QUALITY, LARGEST_QUALITY),
    "cost_usd": (0.0, LONGEST_SECONDS / 3600 * MOST_INSTANCES * HIGHEST_USD_PER_HOUR),
    "energy_joules": (0.0, MOST_JOULES),
    "latency_ms": (SHORTEST_LATENCY_MS, LONGEST_LATENCY_MS),
    "cost_usd_per_10000": (0.0, 1e4 * HIGHEST_COST_USD),
}


Evidence = Literal["measured", "published", "claimed"]
Check = Literal["none", "queued", "running", "epochs_agree", "undecided", "contradicted"]
CHECK_OF_STATUS: dict[str, Check] = {
    "claimed": "none",
    "verifying": "queued",
    "verified": "epochs_agree",
    "inconclusive": "undecided",
    "rejected": "contradicted",
}


Row = Mapping[str, Any]
CHECK_WORDS = {
    "none": None,
    "queued": "replay queued",
    "running": "replaying",
    "epochs_agree": "epochs agree",
    "undecided": "undecided",
    "contradicted": "contradicted",
}
# Code comes without a time. These words replace it until a worker has measured one.
ENTRY_WORDS = {"queued": "queued", "running": "being measured"}
ENTRY_CHECK_WORDS = {"undecided": "undecided", "contradicted": "target not held"}
NOT_MEASURED = "not measured"


def is_entry(row: Row) -> bool:
    """Whether a row is a code submission, which lacks a claimed time and logs."""
    return row.get("trained_with") == "package"


def check_of_row(row: Row) -> str | None:
    """Return the check that a claimed row has passed so far."""
    if row.get("evidence", "claimed") != "claimed":
        return None
    return row.get("check") or CHECK_OF_STATUS.get(str(row.get("status")), "none")


def check_words(row: Row) -> str | None:
    """Name the check of a claimed row, if it has words."""
    check = check_of_row(row) or "none"
    if is_entry(row):
        return ENTRY_CHECK_WORDS.get(check)
    return CHECK_WORDS.get(check)


def evidence_word(row: Row) -> str:
    """Return the word for a row's evidence, or the progress of unmeasured code."""
    evidence = str(row.get("evidence", "claimed"))
    if evidence != "claimed" or not is_entry(row):
        return evidence
    return ENTRY_WORDS.get(check_of_row(row) or "none", NOT_MEASURED)


def evidence_words(row: Row) -> str:
    """Join evidence and check in one line: "claimed · epochs agree"."""
    evidence, check = evidence_word(row), check_words(row)
    return f"{evidence} · {check}" if check else evidence


def ranked_seconds(row: Row) -> float | None:
    """Return the time of a row: ours if it is measured, else the submitter's."""
    if row.get("evidence") == "measured" and row.get("measured_seconds") is not None:
        return float(row["measured_seconds"])
    seconds = row.get("tta_seconds")
    return None if seconds is None else float(seconds)


def ranked_quality(row: Row) -> float | None:
    """Return a row's quality on a board with a budget: ours if measured, else as claimed."""
    measured = row.get("measured_quality") if row.get("evidence") == "measured" else None
    return row.get("quality") if measured is None else float(measured)


def place_words(row: Row) -> str | None:
    """Return a row's number, if any, with "=" if shared."""
    rank = row.get("rank")
    if rank is None:
        return None
    return f"={rank}" if row.get("tied") else str(rank)


def busy_words(row: Row) -> str | None:
    """Say if other programs disturbed the runs of a measured time."""
    if not row.get("busy"):
        return None
    better = "faster" if row.get("measured_quality") is None else "better"
    return f"busy host: may be {better}"


STRENGTH = {"claimed": 0, "published": 1, "measured": 2}


def consequence(before: Row, after: Row) -> str:
    """Describe the change of a row's evidence: "drops from measured to claimed"."""
    first, then = str(before["evidence"]), str(after["evidence"])
    if first != then:
        verb = "rises" if STRENGTH[then] > STRENGTH[first] else "drops"
        return f"{verb} from {evidence_word(before)} to {evidence_words(after)}"
    one, other = evidence_words(before), evidence_words(after)
    return f"stays {one}" if one == other else f"changes from {one} to {other}"


# Where we train ourselves, results published elsewhere are numbered in their own round.
Round = Literal["open", "archive"]
