"""The figure of a leaderboard: time against cost, or times and their intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

from rules.ranking import Standing, pareto_front
from web.chart_parts import Figure, axis, label, layout, plain, time_unit
from web.formats import duration, interval, money

MOST_ENTRIES = 25
SYMBOLS = {
    "verified": "circle",
    "verifying": "circle-open-dot",
    "claimed": "circle-open",
    "inconclusive": "diamond-open",
    "rejected": "x",
}

View = Mapping[str, Any]


def pareto_figure(board: View) -> Figure:
    """Time to accuracy against cost, with the entries that nothing beats in both as a step line.

    Where no ranked entry has a cost, the times and their intervals, best on top.
    """
    ranked = [e for e in board["entries"] if e["rank"] is not None and e["tta_seconds"] is not None]
    priced = [entry for entry in ranked if entry["cost_usd"] is not None]
    return _cost_figure(priced) if priced else _interval_figure(ranked[:MOST_ENTRIES])


def front_entries(entries: Sequence[View]) -> list[View]:
    """The entries that no other beats in both time and cost, cheapest first."""
    by_id = {entry["submission_id"]: entry for entry in entries}
    fastest_first = pareto_front([_standing(entry) for entry in entries])
    return [by_id[submission_id] for submission_id in reversed(fastest_first)]


def _standing(entry: View) -> Standing:
    return Standing(
        submission_id=entry["submission_id"],
        status=entry["status"],
        submitted_at=entry["submitted_at"],
        tta_seconds=entry["tta_seconds"],
        cost_usd=entry["cost_usd"],
        latency_ms=entry["latency_ms"],
        eligible=entry["rank"] is not None,
    )


def _cost_figure(entries: Sequence[View]) -> Figure:
    unit, scale = time_unit(entry["tta_seconds"] for entry in entries)
    front = front_entries(entries)
    step = {
        "type": "scatter",
        "mode": "lines",
        "name": "Pareto front",
        "x": [entry["cost_usd"] for entry in front],
        "y": [entry["tta_seconds"] / scale for entry in front],
        "line": {"shape": "hv", "width": 2},
        "hoverinfo": "skip",
        "meta": {"paint": "front"},
    }
    times = [entry["tta_seconds"] / scale for entry in entries]
    costs = [entry["cost_usd"] for entry in entries]
    dots = [
        _dots(status, [(e["cost_usd"], e["tta_seconds"] / scale, e) for e in group])
        for status, group in _by_status(entries)
    ]
    return {
        "data": [step, *dots],
        "layout": layout(
            xaxis=axis("Cost to accuracy (USD)", costs, tickprefix="$"),
            yaxis=axis(f"Time to accuracy ({unit})", times),
            height=420,
        ),
    }


def _interval_figure(entries: Sequence[View]) -> Figure:
    unit, scale = time_unit(entry["tta_seconds"] for entry in entries)
    place = {entry["submission_id"]: row for row, entry in enumerate(entries)}
    whiskers = {
        "type": "scatter",
        "mode": "lines",
        "name": "95 % interval of the mean",
        "x": [x for e in entries for x in _ends(e, scale)],
        "y": [y for e in entries for y in (place[e["submission_id"]],) * 2 + (None,)],
        "line": {"width": 2},
        "hoverinfo": "skip",
        "meta": {"paint": "front"},
    }
    dots = [
        _dots(s, [(e["tta_seconds"] / scale, place[e["submission_id"]], e) for e in group])
        for s, group in _by_status(entries)
    ]
    names: dict[str, Any] = {
        "tickmode": "array",
        "tickvals": list(place.values()),
        "ticktext": [label(entry["model"]) for entry in entries],
        "range": [len(entries) - 0.4, -0.6],
        "zeroline": False,
    }
    return {
        "data": [whiskers, *dots],
        "layout": layout(
            xaxis=axis(f"Time to accuracy ({unit})"),
            yaxis=axis("", **names),
            height=150 + 34 * len(entries),
            legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        ),
    }


def _ends(entry: View, scale: float) -> tuple[float | None, float | None, None]:
    low, high = entry["tta_low_seconds"], entry["tta_high_seconds"]
    if low is None or high is None:
        return None, None, None
    return low / scale, high / scale, None


def _by_status(entries: Sequence[View]) -> list[tuple[str, list[View]]]:
    groups = [(status, [e for e in entries if e["status"] == status]) for status in SYMBOLS]
    return [(status, group) for status, group in groups if group]


def _dots(status: str, places: Sequence[tuple[float, float, View]]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": status,
        "x": [x for x, _, _ in places],
        "y": [y for _, y, _ in places],
        "text": [_entry_text(entry) for _, _, entry in places],
        "customdata": [f"/submissions/{entry['submission_id']}" for _, _, entry in places],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"symbol": SYMBOLS[status], "size": 11, "line": {"width": 2}},
        "meta": {"paint": f"status-{status}"},
    }


def _entry_text(entry: View) -> str:
    spread = interval(entry["tta_low_seconds"], entry["tta_high_seconds"])
    lines = [
        plain(entry["model"], longest=60),
        f"{label(entry['submitter'])}, {label(entry['system']['name'])}",
        duration(entry["tta_seconds"]) + (f" ({spread})" if spread else ""),
        money(entry["cost_usd"]) if entry["cost_usd"] is not None else "no price stated",
    ]
    return "<br>".join(lines)
