"""Which points of a crowded chart are drawn: those that matter, and an even sample of the rest."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

MOST_POINTS = 500
View = Mapping[str, Any]


def thin_entries(
    entries: Sequence[View], front: Collection[str], *, most: int = MOST_POINTS
) -> list[View]:
    """At most so many entries in their order: the front, then the verified, then even steps.

    All of them where they are no more than that.
    """
    if len(entries) <= most:
        return list(entries)
    first = [e for e in entries if e["submission_id"] in front]
    second = [
        e for e in entries if e.get("evidence") == "measured" and e["submission_id"] not in front
    ]
    kept = {e["submission_id"] for e in (first + even_sample(second, most - len(first)))[:most]}
    others = [e for e in entries if e["submission_id"] not in kept]
    kept |= {e["submission_id"] for e in even_sample(others, most - len(kept))}
    return [entry for entry in entries if entry["submission_id"] in kept]


def even_sample(values: Sequence[Any], most: int) -> list[Any]:
    """At most so many values in their order and evenly apart, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    if most < 2:
        return list(values[: max(most, 0)])
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def thinning_note(drawn: int, known: int) -> str | None:
    """What a caption says where not everything is drawn; None where it is."""
    if drawn == known:
        return None
    return (
        f"{drawn:,} of {known:,} shown: the front, the verified and an even sample of the others."
    )


def number_of(point: View, place: int) -> int:
    """Which evaluation of its run a point is, from 1: where none is left out, its place."""
    return int(point.get("index", place))


def left_out(runs: Sequence[View]) -> str | None:
    """What a page says where not every evaluation of its runs is shown; None where each is."""
    known = sum(run.get("evaluations", len(run["curve"])) for run in runs)
    shown = sum(len(run["curve"]) for run in runs)
    if shown == known:
        return None
    return f"{shown:,} of {known:,} evaluations are shown, evenly apart; the logs hold every one."
