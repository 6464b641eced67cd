"""The figure of how sure a time is: the share of runs that have reached the target by then."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from web.chart_parts import (
    Figure,
    Table,
    axis,
    columns,
    empty_figure,
    layout,
    names_of,
    series_marks,
    submission_row,
    time_unit,
)
from web.formats import DASH, seconds_exact

NOTHING = "No ranked submission here tells its runs."
SHARES = (0.25, 0.5, 0.75, 1.0)

View = Mapping[str, Any]


def reached_by(runs: Sequence[View]) -> list[tuple[float, float]]:
    """Seconds and the share of all runs that had reached the target by then, step by step.

    A run that never got there counts among all, so its curve ends below 1. Every run was watched
    to its end, so this is the Kaplan-Meier estimate, turned round, with no run lost from sight.
    """
    if not runs:
        return []
    times = sorted(run["seconds"] for run in runs if run["seconds"] is not None)
    steps, count = [(0.0, 0.0)], 0
    for seconds, equal in groupby(times):
        count += len(list(equal))
        steps.append((seconds, count / len(runs)))
    return steps


def survival_figure(sets: Sequence[View]) -> Figure:
    """A step for each run, submission by submission; all are drawn on to the slowest run of all.

    A set has its board "entry" and its "runs", each with "seconds", None if it did not get there.
    """
    shown = [one for one in sets if one["runs"]]
    if not shown:
        return empty_figure(NOTHING)
    known = [run["seconds"] for one in shown for run in one["runs"] if run["seconds"] is not None]
    unit, scale = time_unit(known)
    end = max(known, default=0.0) * 1.05
    names = names_of([one["entry"] for one in shown])
    return {
        "data": [
            _steps(one, order, names[one["entry"]["submission_id"]], scale, end)
            for order, one in enumerate(shown)
        ],
        "layout": layout(
            xaxis=axis(f"Time on the clock ({unit})", rangemode="tozero"),
            yaxis=axis(
                "Share of runs at the target", range=[-0.02, 1.04], tickformat=".0%", dtick=0.25
            ),
            height=400,
        ),
    }


def survival_table(sets: Sequence[View]) -> Table:
    """Seconds by which a quarter, half, three quarters and all of the runs had got there."""
    titles = ("Runs", "Reached", "25 % by", "50 % by", "75 % by", "all by")
    return Table(
        columns("Model", "Submitter", "System", figures=titles),
        tuple(
            submission_row(
                one["entry"],
                str(len(one["runs"])),
                str(sum(run["seconds"] is not None for run in one["runs"])),
                *(_by(one["runs"], share) for share in SHARES),
            )
            for one in sets
        ),
    )


def _by(runs: Sequence[View], share: float) -> str:
    at = next((s for s, reached in reached_by(runs) if reached >= share), None)
    return DASH if at is None else seconds_exact(at)


def _steps(one: View, order: int, name: str, scale: float, end: float) -> dict[str, Any]:
    steps = reached_by(one["runs"])
    steps.append((end, steps[-1][1]))
    marks = series_marks(order)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [seconds / scale for seconds, _ in steps],
        "y": [share for _, share in steps],
        "line": {"shape": "hv", "width": 2, "dash": marks["dash"]},
        "marker": {
            "symbol": marks["symbol"],
            "size": [0, *(7 for _ in steps[2:]), 0],
            "line": {"width": 1.5},
        },
        "hovertemplate": "%{y:.0%} by %{x:.4~g}",
        "meta": {"paint": "series", "series": order},
    }
