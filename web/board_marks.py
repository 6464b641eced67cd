"""Marks in rows: times as bars, runs as dots, a row among its neighbours, rows not separated."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from finishline.rules.ranking import ranked_seconds
from web.formats import DASH, TimeFormat

Entry = Mapping[str, Any]
# The bar of the shortest time, so that it can be seen.
SHORTEST_PERCENT = 6.0


@dataclass(frozen=True)
class TimeBar:
    """A time in percent of the longest on the page, with the ends of its interval if known."""

    percent: float
    low: float | None
    high: float | None


def time_bars(entries: Sequence[Entry]) -> dict[str, TimeBar]:
    """The bar of each row with a time, by submission; none where there is nothing to compare."""
    rows = {entry["submission_id"]: _times(entry) for entry in entries}
    known = [value for times in rows.values() for value in times if value is not None and value > 0]
    if len(entries) < 2 or not known or min(known) == max(known):
        return {}
    shortest, span = min(known), math.log(max(known) / min(known))

    def at(seconds: float | None) -> float | None:
        if seconds is None or seconds <= 0:
            return None
        rest = 100 - SHORTEST_PERCENT
        return round(SHORTEST_PERCENT + rest * math.log(seconds / shortest) / span, 1)

    found = {}
    for name, (seconds, low, high) in rows.items():
        percent = at(seconds)
        if percent is not None:
            found[name] = TimeBar(percent, at(low), at(high))
    return found


def _times(entry: Entry) -> tuple[float | None, float | None, float | None]:
    is_ours = entry.get("evidence") == "measured" and entry.get("measured_seconds") is not None
    ends = "measured" if is_ours else "tta"
    return ranked_seconds(entry), entry[f"{ends}_low_seconds"], entry[f"{ends}_high_seconds"]


def not_separated(entries: Sequence[Entry]) -> frozenset[str]:
    """The rows that a bracket joins: from a row to the best that it is not separated from."""
    ranges = [
        (entry["not_separated_from"], entry["rank"])
        for entry in entries
        if entry.get("not_separated_from") is not None and entry["rank"] is not None
    ]
    return frozenset(
        entry["submission_id"]
        for entry in entries
        if entry["rank"] is not None and any(a <= entry["rank"] <= b for a, b in ranges)
    )


WIDTH, HEIGHT, RADIUS = 96, 14, 3
# Runs further from their median than this stand at the edge.
FURTHEST = math.log(2)


@dataclass(frozen=True)
class Dots:
    """The runs of a row: where each stands from the left, and their times in words."""

    places: tuple[float, ...]
    words: str


def run_dots(times: Mapping[str, Sequence[float]], time: TimeFormat) -> dict[str, Dots]:
    """The dots of each row around its median, on one logarithmic scale for all rows."""
    offsets = {
        name: [_offset(one, median(runs)) for one in runs] for name, runs in times.items() if runs
    }
    widest = max((abs(at) for row in offsets.values() for at in row), default=0.0) or FURTHEST
    half = WIDTH / 2
    return {
        name: Dots(
            tuple(round(half + at / widest * (half - RADIUS - 1), 1) for at in row),
            "runs of " + ", ".join(time(one) for one in times[name]),
        )
        for name, row in offsets.items()
    }


def _offset(seconds: float, middle: float) -> float:
    if seconds <= 0 or middle <= 0:
        return 0.0
    return max(-FURTHEST, min(FURTHEST, math.log(seconds / middle)))


@dataclass(frozen=True)
class Whisker:
    """A row among its neighbours on the board: its time and interval in percent of the widest."""

    place: str
    name: str
    text: str
    at: float
    low: float | None
    high: float | None
    is_own: bool
    address: str


def whiskers(places: Sequence[Entry], own: str, shown: TimeFormat) -> list[Whisker]:
    """The neighbours of a submission on one scale of time, in the order of the board.

    A place has `seconds` with the ends of its interval, or None where they are not known.
    """
    timed = [place for place in places if place["seconds"] is not None]
    ends = [
        value for p in timed for value in (p["seconds"], p["low"], p["high"]) if value is not None
    ]
    if not ends:
        return []
    low, high = min(ends), max(ends)
    span = (high - low) or high or 1.0
    low, span = low - 0.04 * span, 1.08 * span

    def at(value: float) -> float:
        return float(100 * (value - low) / span)

    return [
        Whisker(
            place=place["place"] or DASH,
            name=place["name"],
            text=shown(place["seconds"]),
            at=at(place["seconds"]),
            low=None if place["low"] is None else at(place["low"]),
            high=None if place["high"] is None else at(place["high"]),
            is_own=place["submission_id"] == own,
            address=f"/submissions/{place['submission_id']}",
        )
        for place in timed
    ]
