"""A race as a picture: curves towards the target and a lane for each run, in shares of the plot.

Coordinates of a path lie in a sandbox of 1000 by 1000, those of lanes and ticks are percentages:
the template stretches them to the width of the page without stretching a line or a letter.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from finishline.rules.verification.head_to_head import SIDES
from web.chart_parts import even_sample
from web.formats import DASH, SECONDS, TimeFormat, number, quality
from web.progress import ghost_label, side_of
from web.target_label import LabelPlace, label_place

View = Mapping[str, Any]
MOST_POINTS = 200
MOST_TICKS = 5
BOX = 1000.0
SERIES = 8


@dataclass(frozen=True)
class Runner:
    """A run or a ghost with its evaluations; `seconds` is its time to the target, if it got there.

    `kind` is "series-0" to "series-7" for a run, or the role of a ghost.
    """

    name: str
    points: Sequence[View]
    seconds: float | None
    kind: str
    is_finished: bool = True


@dataclass(frozen=True)
class Line:
    """A runner as drawn: its curve as a path, its lane up to `percent`, its time in words.

    A curve of one evaluation is a dot: a path of no length, which round ends show.
    """

    name: str
    kind: str
    path: str
    percent: float
    reached: bool
    text: str
    ticks: tuple[float, ...]
    is_dot: bool


@dataclass(frozen=True)
class Tick:
    """A mark of an axis, in percent of the plot from the left or from the top."""

    at: float
    text: str


@dataclass(frozen=True)
class Picture:
    """A race: its lines, both axes, and the height of the target in percent from the top.

    It has no curve where every run was evaluated once: its lanes tell all there is.
    """

    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    target_at: float
    target_text: str
    target_label: LabelPlace
    longest_seconds: float
    summary: str
    has_curves: bool = True


def verification_picture(
    verification: View,
    race: View,
    shown: TimeFormat = SECONDS,
    untimed: Mapping[int, str] = MappingProxyType({}),
) -> Picture | None:
    """The runs of a verification beside its ghosts; None before the first evaluation.

    `untimed` names the runs that measure no time, by their index.
    """
    report = verification["report"]
    runs = report["runs"] if report else race["runs"]
    target = verification["target"]
    runners = [_run(verification, run, target, untimed) for run in runs]
    ghosts = [_ghost(ghost, target) for ghost in race["ghosts"]]
    return picture([*runners, *ghosts], target, shown)


def runs_picture(
    runs: Sequence[View],
    target: View,
    ghosts: Sequence[View] = (),
    shown: TimeFormat = SECONDS,
) -> Picture | None:
    """The runs of a submission, each with its "file" and its "curve", beside ghosts."""
    runners = [
        Runner(run["file"], run["curve"], _crossing(run["curve"], target), _colour(order))
        for order, run in enumerate(runs)
    ]
    return picture([*runners, *(_ghost(ghost, target) for ghost in ghosts)], target, shown)


def picture(runners: Iterable[Runner], target: View, shown: TimeFormat = SECONDS) -> Picture | None:
    """Draw runners to a common scale; None where none of them was evaluated."""
    drawn = [runner for runner in runners if runner.points]
    if not drawn:
        return None
    longest = max(point["seconds"] for runner in drawn for point in runner.points) or 1.0
    qualities = [point["quality"] for runner in drawn for point in runner.points]
    low, high = min(*qualities, target["value"]), max(*qualities, target["value"])
    margin = (high - low or abs(high) or 1.0) * 0.06
    scale = _Scale(longest, low - margin, high + margin)
    unit = target["unit"]
    short = unit if unit == "percent" else None  # Others stand with the target alone.
    y_ticks = tuple(
        Tick(scale.y(at) / 10, quality(at, short)) for at in _steps(scale.low, scale.high)
    )
    return Picture(
        lines=tuple(_line(runner, scale, shown) for runner in drawn),
        x_ticks=_time_ticks(scale, shown),
        y_ticks=y_ticks,
        target_at=scale.y(target["value"]) / 10,
        target_text=f"target {quality(target['value'], unit)}",
        target_label=label_place(
            scale.y(target["value"]) / 10,
            (
                [(scale.x(p["seconds"]) / 10, scale.y(p["quality"]) / 10) for p in runner.points]
                for runner in drawn
            ),
            (tick.at for tick in y_ticks),
        ),
        longest_seconds=longest,
        summary=_summary(drawn, shown),
        has_curves=any(len(runner.points) > 1 for runner in drawn),
    )


@dataclass(frozen=True)
class _Scale:
    longest: float
    low: float
    high: float

    def x(self, seconds: float) -> float:
        return BOX * seconds / self.longest

    def y(self, value: float) -> float:
        return BOX * (self.high - value) / (self.high - self.low)


def _run(verification: View, run: View, target: View, untimed: Mapping[int, str]) -> Runner:
    points, index = run["evaluations"], int(run["index"])
    side = side_of(verification, index)
    apart = side or untimed.get(index)
    name = f"run {index + 1}" + ("" if apart is None else f", {apart}")
    series = index if side is None else SIDES.index(side)
    done = run.get("status") is not None
    return Runner(name, points, _crossing(points, target), _colour(series), is_finished=done)


def _ghost(ghost: View, target: View) -> Runner:
    points = ghost["points"]
    return Runner(ghost_label(ghost), points, _crossing(points, target), ghost["role"])


def _colour(order: int) -> str:
    return f"series-{order % SERIES}"


def _crossing(points: Sequence[View], target: View) -> float | None:
    """Seconds of the first evaluation at the target; None for a run that does not reach it."""
    sign = 1 if target["direction"] == "higher" else -1
    reached = (p["seconds"] for p in points if sign * (p["quality"] - target["value"]) >= 0)
    return next(reached, None)


def _line(runner: Runner, scale: _Scale, shown: TimeFormat) -> Line:
    kept = even_sample(list(runner.points), MOST_POINTS)
    steps = [f"{scale.x(p['seconds']):.1f} {scale.y(p['quality']):.1f}" for p in kept]
    reached = runner.seconds is not None
    end = runner.seconds if runner.seconds is not None else runner.points[-1]["seconds"]
    missed = "missed" if runner.is_finished else f"{shown(end)} so far"
    if runner.kind == "claim":  # A mean of runs that ended at the target each may end below it.
        missed = f"until {shown(end)}"
    return Line(
        name=runner.name,
        kind=runner.kind,
        path="M" + "L".join(steps if len(steps) > 1 else [steps[0], steps[0]]),
        percent=scale.x(end) / 10,
        reached=reached,
        text=shown(runner.seconds) if reached else missed,
        ticks=tuple(scale.x(p["seconds"]) / 10 for p in kept if p["seconds"] < end),
        is_dot=len(steps) == 1,
    )


def _time_ticks(scale: _Scale, shown: TimeFormat) -> tuple[Tick, ...]:
    unit, seconds = ("min" if shown.scale > 1 else "s"), shown.scale
    places = _steps(0.0, scale.longest / seconds)[1:]
    return tuple(Tick(scale.x(at * seconds) / 10, f"{number(at)} {unit}") for at in places)


def _steps(low: float, high: float) -> list[float]:
    """Round numbers from `low` to `high`, at most so many as an axis shows."""
    span = (high - low) / MOST_TICKS
    power = 10.0 ** math.floor(math.log10(span))
    step = next((n * power for n in (1, 2, 5) if n * power >= span), 10 * power)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [place * step for place in range(first, last + 1)]


def _summary(runners: Sequence[Runner], shown: TimeFormat) -> str:
    """The race as a sentence for readers who do not see it."""
    said = [
        f"{runner.name} {'at ' + shown(runner.seconds) if runner.seconds else 'not yet'}"
        for runner in runners[:MOST_TICKS]
    ]
    more = len(runners) - len(said)
    return f"At the target: {', '.join(said)}" + (f" and {more} more." if more else ".")


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
