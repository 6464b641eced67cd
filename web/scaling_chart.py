"""The figure of how a submitter's systems scale: speed-up against the number of accelerators."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from web.chart_parts import (
    Figure,
    Table,
    axis,
    columns,
    empty_figure,
    label,
    layout,
    plain,
    series_marks,
    submission_row,
)
from web.formats import SECONDS, TimeFormat, number, percent
from web.names import accelerator_of_system, byline

NOTHING = (
    "This needs at least two ranked submissions by one submitter with different numbers of the "
    "same accelerator."
)
MOST_FAMILIES = 12

View = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """The fastest entry with so many accelerators.

    `speed_up` is in accelerators of the smallest system: twice as fast as one of 8 is 16.
    `efficiency` is its share of the accelerators there are.
    """

    entry: View
    accelerators: int
    speed_up: float
    efficiency: float


@dataclass(frozen=True)
class ScalingFamily:
    """Systems of one submitter with the same accelerator in one division, smallest first."""

    submitter: str
    accelerator: str
    division: str
    steps: tuple[Step, ...]


def scaling_families(board: View) -> list[ScalingFamily]:
    """The families of a board that have at least two sizes, those with the most sizes first."""
    found: defaultdict[tuple[str, str, str], dict[int, View]] = defaultdict(dict)
    for entry in board["entries"]:
        system = accelerator_of_system(entry["system"])
        count, name = system.count, system.model
        if entry["rank"] is None or not entry["tta_seconds"] or not count or not name:
            continue
        sizes = found[byline(entry), name, entry["division"]]
        if count not in sizes or entry["tta_seconds"] < sizes[count]["tta_seconds"]:
            sizes[count] = entry
    families = [
        ScalingFamily(*key, steps=_steps(sizes)) for key, sizes in found.items() if len(sizes) > 1
    ]
    return sorted(families, key=lambda family: -len(family.steps))


def _steps(sizes: Mapping[int, View]) -> tuple[Step, ...]:
    smallest = min(sizes)
    alone = smallest * sizes[smallest]["tta_seconds"]
    return tuple(
        Step(entry, count, alone / entry["tta_seconds"], alone / entry["tta_seconds"] / count)
        for count, entry in sorted(sizes.items())
    )


def scaling_figure(board: View, *, time: TimeFormat = SECONDS) -> Figure:
    """Speed-up of each family against its accelerators, with the line of perfect scaling."""
    families = scaling_families(board)
    if not families:
        return empty_figure(NOTHING)
    drawn = families[:MOST_FAMILIES]
    counts = [step.accelerators for family in drawn for step in family.steps]
    speeds = [step.speed_up for family in drawn for step in family.steps]
    ends = [min(counts), max(counts)]
    ideal = {
        "type": "scatter",
        "mode": "lines",
        "name": "ideal",
        "x": ends,
        "y": ends,
        "line": {"width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
        "meta": {"paint": "target"},
    }
    left_out = len(families) - len(drawn)
    note = f"{len(drawn)} of {len(families)} families shown: those with most sizes."
    return {
        "data": [ideal, *(_line(family, order, time) for order, family in enumerate(drawn))],
        "layout": layout(
            xaxis=axis("Accelerators", **_doubling(counts)),
            yaxis=axis("Speed-up (accelerators)", **_doubling([*speeds, *ends])),
            height=440,
            meta={"note": note} if left_out else {},
        ),
    }


def _doubling(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis with doubling ticks, as sizes of systems mostly double."""
    powers = range(math.floor(math.log2(min(values))), math.ceil(math.log2(max(values))) + 1)
    return {"type": "log", "tickmode": "array", "tickvals": [2.0**power for power in powers]}


def scaling_table(board: View, *, time: TimeFormat = SECONDS) -> Table:
    """Every step of every family."""
    titles = ("Accelerators", "Time to accuracy", "Speed-up", "Efficiency")
    return Table(
        columns("Entry", "Submitter", "Hardware", "Accelerator", "Division", figures=titles),
        tuple(
            submission_row(
                step.entry,
                family.accelerator,
                family.division,
                str(step.accelerators),
                time(step.entry["tta_seconds"]),
                number(step.speed_up, 4),
                percent(100 * step.efficiency, 0),
            )
            for family in scaling_families(board)
            for step in family.steps
        ),
    )


def _line(family: ScalingFamily, order: int, time: TimeFormat) -> dict[str, Any]:
    marks = series_marks(order)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(f"{family.submitter}, {family.accelerator}"),
        "x": [step.accelerators for step in family.steps],
        "y": [step.speed_up for step in family.steps],
        "text": [_text(family, step, time) for step in family.steps],
        "customdata": [f"/submissions/{step.entry['submission_id']}" for step in family.steps],
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"width": 2, "dash": marks["dash"]},
        "marker": {"symbol": marks["symbol"], "size": 9, "line": {"width": 2}},
        "meta": {"paint": "series", "series": order},
    }


def _text(family: ScalingFamily, step: Step, time: TimeFormat) -> str:
    lines: Sequence[str] = (
        f"{label(family.submitter)}, {step.accelerators} × {plain(family.accelerator, longest=40)}",
        plain(step.entry["system"]["name"], longest=60),
        f"{time(step.entry['tta_seconds'])}, {percent(100 * step.efficiency, 0)} of ideal",
    )
    return "<br>".join(lines)
