"""A race as lanes, one for each run and ghost, and a submission among its neighbours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.verification.head_to_head import SIDES
from web.chart_parts import even_sample
from web.formats import DASH, TimeFormat
from web.progress import ghost_label, side_of

View = Mapping[str, Any]
MOST_TICKS = 200
SERIES = 8


@dataclass(frozen=True)
class Lane:
    """A run or a ghost: its bar up to its time in percent of the longest, its time in words.

    `ticks` are its evaluations. `kind` is "series-0" to "series-7", or the role of a ghost.
    """

    name: str
    kind: str
    percent: float
    text: str
    ticks: tuple[float, ...]


@dataclass(frozen=True)
class Lanes:
    """The lanes of a race; `seconds` is the length of each."""

    seconds: float
    lanes: tuple[Lane, ...]


def race_lanes(
    verification: View, race: View, time: TimeFormat, untimed: Mapping[int, str]
) -> Lanes | None:
    """The runs of a verification beside its ghosts; None before the first evaluation.

    `untimed` names the runs that measure no time, by their index.
    """
    report, target = verification["report"], verification["target"]
    runs = [run for run in (report or race)["runs"] if run["evaluations"]]
    ghosts = [ghost for ghost in race["ghosts"] if ghost["points"]]
    points = [*(run["evaluations"] for run in runs), *(ghost["points"] for ghost in ghosts)]
    if not points:
        return None
    longest = max(point["seconds"] for curve in points for point in curve) or 1.0

    def lane(name: str, kind: str, curve: Sequence[View], *, is_finished: bool = True) -> Lane:
        reached = crossing(curve, target)
        end = curve[-1]["seconds"] if reached is None else reached
        missed = "missed" if is_finished else f"{time(end)} so far"
        if kind == "claim":  # A mean of runs that ended at the target each may end below it.
            missed = f"until {time(end)}"
        shown = (point["seconds"] for point in even_sample(curve, MOST_TICKS))
        ticks = tuple(100 * seconds / longest for seconds in shown if seconds < end)
        words = missed if reached is None else time(end)
        return Lane(name, kind, 100 * end / longest, words, ticks)

    lanes = []
    for run in runs:
        index = int(run["index"])
        side = side_of(verification, index)
        series = index if side is None else SIDES.index(side)
        parts = (f"run {index + 1}", side or untimed.get(index))
        done = run.get("status") is not None
        name, kind = ", ".join(filter(None, parts)), f"series-{series % SERIES}"
        lanes.append(lane(name, kind, run["evaluations"], is_finished=done))
    lanes += [lane(ghost_label(each), each["role"], each["points"]) for each in ghosts]
    return Lanes(longest, tuple(lanes))


def crossing(points: Sequence[View], target: View) -> float | None:
    """Seconds of the first evaluation at the target; None for a run that does not reach it."""
    sign = 1 if target["direction"] == "higher" else -1
    reached = (p["seconds"] for p in points if sign * (p["quality"] - target["value"]) >= 0)
    return next(reached, None)


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


def whiskers(places: Sequence[View], own: str, shown: TimeFormat) -> list[Whisker]:
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
