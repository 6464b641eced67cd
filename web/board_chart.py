"""The figure of a leaderboard: time against a second figure, or times and their intervals."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.ranking import POSSIBLE, evidence_words
from web.chart_parts import (
    SYMBOLS,
    Figure,
    Table,
    axis,
    columns,
    empty_figure,
    evidence_group,
    label,
    layout,
    names_of,
    plain,
    submission_row,
    thin_entries,
    thinning_note,
    time_axis,
    vendor_of,
    vendor_paint,
)
from web.formats import DASH, SECONDS, TimeFormat, milliseconds, money, number
from web.names import byline, entry_title, hardware, hardware_words

MOST_INTERVALS = 25
FEWEST_POINTS = 2
DOT_SIZE = 11
ONE_POINT = "A chart needs two entries."

View = Mapping[str, Any]
Group = tuple[str, str]


@dataclass(frozen=True)
class Against:
    """A figure that times are set against; of `missing`, how a submission comes to have one."""

    label: str
    title: str
    key: str
    shown: Callable[[float | None], str]
    missing: str
    prefix: str = ""


def _joules(joules: float | None) -> str:
    return DASH if joules is None else f"{number(joules, 4)} J"


def _quality(quality: float | None) -> str:
    return number(quality)


AGAINST = {
    "cost": Against(
        "cost",
        "Cost to accuracy (USD)",
        "cost_usd",
        money,
        "No prices given, so there is no cost chart. Try your own price on the leaderboard.",
        prefix="$",
    ),
    "energy": Against(
        "energy",
        "Energy to accuracy (joules)",
        "energy_joules",
        _joules,
        "No energy measured yet: a replay on a machine with an energy counter measures it.",
    ),
    "quality": Against(
        "quality",
        "Best quality",
        "quality",
        _quality,
        "No best quality given, so there is no chart of it.",
    ),
    "latency": Against(
        "measured latency",
        "Latency of one item, as measured (ms)",
        "measured_latency_ms",
        milliseconds,
        "No latency measured yet: a latency verification measures it.",
    ),
}


def pareto_figure(
    board: View,
    against: str = "cost",
    *,
    lower_quality: bool = False,
    time: TimeFormat = SECONDS,
) -> Figure:
    """Time to accuracy against a second figure, with the entries that nothing beats in both.

    Where no ranked entry has a cost, the times and their intervals, best on top. A higher quality
    is better unless `lower_quality` says otherwise; of the others less is better.
    """
    ranked, known = _drawn_from(board, against)
    if len(known) >= FEWEST_POINTS:
        return _against_figure(known, against, time, lower_quality=lower_quality)
    if against == "cost" and not known:
        return _interval_figure(ranked, time)
    return empty_figure(ONE_POINT if known else AGAINST[against].missing)


def pareto_table(
    board: View,
    against: str = "cost",
    *,
    lower_quality: bool = False,
    time: TimeFormat = SECONDS,
) -> Table:
    """Every ranked entry with its time and its second figure, and whether it is on the front."""
    ranked, known = _drawn_from(board, against)
    kind = AGAINST[against]
    front = {e["submission_id"] for e in front_entries(known, against, lower_quality=lower_quality)}
    return Table(
        columns(
            "Entry",
            "Submitter",
            "Hardware",
            "Status",
            "Front",
            figures=("Rank", "Time to accuracy", kind.title),
        ),
        tuple(
            submission_row(
                entry,
                evidence_words(entry),
                "on the front" if entry["submission_id"] in front else DASH,
                str(entry["rank"]),
                time(entry["tta_seconds"]),
                kind.shown(entry.get(kind.key)),
            )
            for entry in ranked
        ),
    )


def _drawn_from(board: View, against: str) -> tuple[list[View], list[View]]:
    ranked = [e for e in board["entries"] if e["rank"] is not None and e["tta_seconds"] is not None]
    key = AGAINST[against].key
    least, most = POSSIBLE.get(key, (-math.inf, math.inf))
    return ranked, [
        e for e in ranked if (amount := e.get(key)) is not None and least <= amount <= most
    ]


def front_entries(
    entries: Sequence[View], against: str = "cost", *, lower_quality: bool = False
) -> list[View]:
    """The entries that no other beats in both, by their second figure in rising order."""
    more_is_better = against == "quality" and not lower_quality
    sign, key = -1.0 if more_is_better else 1.0, AGAINST[against].key
    front: list[View] = []
    best = (math.inf, math.inf)
    for entry in sorted(
        entries,
        key=lambda e: (e["tta_seconds"], sign * e[key], e["submitted_at"], e["submission_id"]),
    ):
        time, amount = entry["tta_seconds"], sign * entry[key]
        if amount < best[1] or (time, amount) == best:
            front.append(entry)
            best = (time, amount)
    return front if more_is_better else front[::-1]


def _against_figure(
    entries: Sequence[View], against: str, time: TimeFormat, *, lower_quality: bool
) -> Figure:
    kind = AGAINST[against]
    scale = time.scale
    front = front_entries(entries, against, lower_quality=lower_quality)
    drawn = thin_entries(entries, {entry["submission_id"] for entry in front})
    more_is_better = against == "quality" and not lower_quality
    step = {
        "type": "scatter",
        # Marks that are not seen, as large as the dots at the ends: names keep off those.
        "mode": "lines+markers+text",
        "marker": {"symbol": "line-ew", "size": DOT_SIZE, "opacity": 0},
        "name": "Pareto front",
        "text": [label(hardware_words(entry["system"])) for entry in front],
        "textposition": "top right",
        "x": [entry[kind.key] for entry in front],
        "y": [entry["tta_seconds"] / scale for entry in front],
        "line": {"shape": "vh" if more_is_better else "hv", "width": 2},
        "hoverinfo": "skip",
        "meta": {"paint": "front"},
    }
    dots = [
        _dots(group, [(e[kind.key], e["tta_seconds"] / scale, e) for e in found], against, time)
        for group, found in _by_group(drawn)
    ]
    note = thinning_note(len(drawn), len(entries))
    return {
        "data": [step, *dots],
        "layout": layout(
            xaxis=axis(kind.title, (e[kind.key] for e in entries), tickprefix=kind.prefix),
            yaxis=time_axis(time, "Time to accuracy", (e["tta_seconds"] for e in entries)),
            height=420,
            meta={"note": note} if note else {},
        ),
    }


def _interval_figure(ranked: Sequence[View], time: TimeFormat) -> Figure:
    entries = ranked[:MOST_INTERVALS]
    if len(entries) < FEWEST_POINTS:
        return empty_figure(ONE_POINT if entries else "No submission is ranked here yet.")
    scale = time.scale
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
        _dots(
            group,
            [(e["tta_seconds"] / scale, place[e["submission_id"]], e) for e in found],
            "cost",
            time,
        )
        for group, found in _by_group(entries)
    ]
    left_out = len(ranked) - len(entries)
    about = {"about": "Time to accuracy with the 95 % interval of its mean; no prices given"}
    note = {"note": f"The first {len(entries)} of {len(ranked):,} are shown."} if left_out else {}
    return {
        "data": [whiskers, *dots],
        "layout": layout(
            xaxis=time_axis(
                time,
                "Time to accuracy",
                (x for e in entries for x in (*_ends(e, 1.0), e["tta_seconds"]) if x),
            ),
            yaxis=rows_axis(entries),
            height=intervals_height(len(entries)),
            meta=about | note,
        ),
    }


def intervals_height(ranked: int) -> int:
    """Pixels of the chart of times and their intervals on a board with so many ranked entries."""
    return 150 + 34 * min(ranked, MOST_INTERVALS)


def rows_axis(entries: Sequence[View]) -> dict[str, Any]:
    """A vertical axis with a row for each entry, the first on top."""
    return axis(
        "",
        tickmode="array",
        tickvals=list(range(len(entries))),
        ticktext=list(names_of(entries).values()),
        range=[len(entries) - 0.4, -0.6],
        zeroline=False,
    )


def _ends(entry: View, scale: float) -> tuple[float | None, float | None, None]:
    low, high = entry["tta_low_seconds"], entry["tta_high_seconds"]
    if low is None or high is None:
        return None, None, None
    return low / scale, high / scale, None


def _by_group(entries: Sequence[View]) -> list[tuple[Group, list[View]]]:
    """Entries by vendor, the most frequent first, and by how their time is known."""
    found = Counter(map(vendor_of, entries))
    groups = [(vendor, status) for vendor, _ in found.most_common() for status in SYMBOLS]
    drawn = [
        (group, [e for e in entries if (vendor_of(e), evidence_group(e)) == group])
        for group in groups
    ]
    return [(group, members) for group, members in drawn if members]


def _dots(
    group: Group, places: Sequence[tuple[float, float, View]], against: str, time: TimeFormat
) -> dict[str, Any]:
    vendor, status = group
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{vendor}, {status}",
        "x": [x for x, _, _ in places],
        "y": [y for _, y, _ in places],
        "text": [_entry_text(entry, AGAINST[against], time) for _, _, entry in places],
        "customdata": [f"/submissions/{entry['submission_id']}" for _, _, entry in places],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"symbol": SYMBOLS[status], "size": DOT_SIZE, "line": {"width": 2}},
        "meta": {"paint": vendor_paint(vendor)},
    }


def _entry_text(entry: View, kind: Against, time: TimeFormat) -> str:
    spread = time.interval(entry["tta_low_seconds"], entry["tta_high_seconds"])
    amount = entry.get(kind.key)
    lines = [
        plain(entry_title(entry), longest=60),
        f"{label(byline(entry))}, {label(hardware(entry))}",
        time(entry["tta_seconds"]) + (f" ({spread})" if spread else ""),
        "no price stated" if amount is None else f"{kind.label} {kind.shown(amount)}",
    ]
    return "<br>".join(lines)
