"""Records over time: the figure of a board, and a small line for the home page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from finishline.rules.ranking import evidence_words
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.text import count_text
from web.chart_parts import (
    SYMBOLS,
    Figure,
    Row,
    Table,
    axis,
    columns,
    empty_figure,
    evidence_group,
    label,
    layout,
    plain,
    series_marks,
    time_axis,
)
from web.formats import DASH, SECONDS, TimeFormat, day, moment
from web.names import byline, hardware

View = Mapping[str, Any]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FEW_DAYS = 6  # Ticks stand a day apart in so short a time.
FEWEST_POINTS = 2
ONE_POINT = "There is one record: a line needs two."
NOTHING = "No record has been set here yet: the first ranked submission sets it."


def records_figure(
    divisions: Sequence[View], note: str | None = None, *, time: TimeFormat = SECONDS
) -> Figure:
    """Time to accuracy by date: the records of each board as steps, other lower times as marks.

    The last record of a board is drawn on to the latest date of all. A `note` is for the caption.
    """
    marks = [mark for d in divisions for mark in (*d["records"], *d["not_records"])]
    if len(marks) < FEWEST_POINTS:
        return empty_figure(ONE_POINT if marks else NOTHING)
    latest = max(mark["date"] for mark in marks)
    traces = []
    for order, (name, division) in enumerate(zip(board_names(divisions), divisions, strict=True)):
        if division["records"]:
            traces.append(_steps(division, order, time, latest) | {"name": name})
        if division["not_records"]:
            others = {"name": name, "showlegend": not division["records"]}
            traces.append(_others(division, order, time) | others)
    return {
        "data": traces,
        "layout": layout(
            xaxis=_date_axis([mark["date"] for mark in marks]),
            yaxis=time_axis(time, "Time to accuracy", (mark["tta_seconds"] for mark in marks)),
            height=400,
            showlegend=True,
            meta={"note": note} if note else {},
        ),
    }


def board_names(divisions: Sequence[View]) -> list[str]:
    """Name of each list of records: its division, and its hardware class where there are several.

    Published records have no class.
    """
    classes = {each.get("hardware_class") for each in divisions} - {None}
    return [
        f"{each['division']}, {each['hardware_class']}"
        if each.get("hardware_class") and len(classes) > 1
        else str(each["division"])
        for each in divisions
    ]


def _date_axis(dates: Sequence[str]) -> dict[str, Any]:
    """An axis that fits the dates: in hours if all are of one day, else in days."""
    moments = sorted(moment(date) for date in dates)
    first, last = moments[0], moments[-1]
    is_one_day = first.date() == last.date() and any("T" in date for date in dates)
    margin = max((last - first) * 0.04, HOUR / 4 if is_one_day else DAY / 2)
    ends = [(first - margin).isoformat(), (last + margin).isoformat()]
    found: dict[str, Any] = {"type": "date", "range": ends, "nticks": 6}
    if is_one_day:
        return axis(f"{day(dates[0])}, UTC", **found, tickformat="%H:%M")
    if last - first < FEW_DAYS * DAY:
        found |= {"dtick": DAY / timedelta(milliseconds=1)}
    return axis("Date", **found, tickformat="%-d %b<br>%Y")


def records_table(divisions: Sequence[View], *, time: TimeFormat = SECONDS) -> Table:
    """Every record and every lower time that took none, in the order of their dates."""
    rows = [
        (mark, name, mark.get("reason") or _record_words(mark))
        for name, division in zip(board_names(divisions), divisions, strict=True)
        for mark in (*division["records"], *division["not_records"])
    ]
    return Table(
        columns(
            "Entry",
            "Submitter",
            "Hardware",
            "Date",
            "Board",
            "Evidence",
            "Record",
            figures=("Time to accuracy", "One-sided p"),
        ),
        tuple(
            Row(
                (
                    mark["model"],
                    byline(mark),
                    hardware(mark),
                    day(mark["date"]),
                    name,
                    evidence_words(mark),
                    verdict,
                    time(mark["tta_seconds"]),
                    DASH if mark["p_value"] is None else f"{mark['p_value']:.2g}",
                ),
                f"/submissions/{mark['submission_id']}",
            )
            for mark, name, verdict in sorted(rows, key=lambda row: str(row[0]["date"]))
        ),
    )


def _record_words(record: View) -> str:
    if record.get("returned"):
        return "record again"
    return f"record, {record['ended']} later" if record.get("ended") else "record"


def _steps(division: View, order: int, time: TimeFormat, latest: str) -> dict[str, Any]:
    records = division["records"]
    return {
        **_marks([*records, records[-1]], time),
        "mode": "lines+markers",
        "x": [*(record["date"] for record in records), latest],
        "y": [r["tta_seconds"] / time.scale for r in (*records, records[-1])],
        "line": {"shape": "hv", "width": 2, "dash": series_marks(order)["dash"]},
        # The end of the last step is no record, so it has no mark.
        "marker": {
            "symbol": [*(SYMBOLS[evidence_group(record)] for record in records), "circle"],
            "size": [*(11 for _ in records), 0],
            "line": {"width": 2},
        },
        "meta": {"paint": "series", "series": order},
    }


def _others(division: View, order: int, time: TimeFormat) -> dict[str, Any]:
    others = division["not_records"]
    return {
        **_marks(others, time),
        "mode": "markers",
        "x": [other["date"] for other in others],
        "y": [other["tta_seconds"] / time.scale for other in others],
        "marker": {
            "symbol": [SYMBOLS[evidence_group(other)] for other in others],
            "size": 6,
            "line": {"width": 1},
        },
        "meta": {"paint": "series", "series": order},
    }


def _marks(marks: Sequence[View], time: TimeFormat) -> dict[str, Any]:
    return {
        "type": "scatter",
        "text": [_text(mark, time) for mark in marks],
        "customdata": [f"/submissions/{mark['submission_id']}" for mark in marks],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _text(mark: View, time: TimeFormat) -> str:
    lines = [
        plain(mark["model"], longest=60),
        label(f"{byline(mark)}, {hardware(mark)}"),
        f"{time(mark['tta_seconds'])}, {day(mark['date'])}, {evidence_words(mark)}",
    ]
    if reason := mark.get("reason"):
        lines.append(plain(reason, longest=90))
    elif mark["margin_percent"] is not None:
        lines.append(f"{mark['margin_percent']:.1f} % faster than the record before")
    return "<br>".join(lines)


WIDTH = 120
HEIGHT = 36
_PAD = 3.0
_HOLD = 0.06  # How much of the width the last record is drawn to hold.


@dataclass(frozen=True)
class Sparkline:
    """A path within WIDTH x HEIGHT, the point it ends in, and its description in words."""

    path: str
    end_x: float
    end_y: float
    words: str


def record_sparkline(
    records: Sequence[Mapping[str, Any]], time: TimeFormat = SECONDS
) -> Sparkline | None:
    """The records of a division from first to last, times on a logarithmic scale.

    None where there is no history: fewer than two, or all of one day, as of an imported round.
    """
    if len({day(record["date"]) for record in records}) < 2:
        return None
    days = [moment(record["date"]).timestamp() / 86_400 for record in records]
    # An archive may have any time, and the page this is on is everybody's.
    levels = [math.log(max(record["tta_seconds"], SHORTEST_SECONDS)) for record in records]
    span, height = days[-1] - days[0], levels[0] - levels[-1] or 1.0
    points = [
        (
            round(_PAD + (WIDTH - 2 * _PAD) * (1 - _HOLD) * (one - days[0]) / span, 1),
            round(_PAD + (HEIGHT - 2 * _PAD) * (levels[0] - level) / height, 1),
        )
        for one, level in zip(days, levels, strict=True)
    ]
    end_x, end_y = WIDTH - _PAD, points[-1][1]
    steps = "".join(f"H{x:g}V{y:g}" for x, y in points[1:])
    path = f"M{points[0][0]:g} {points[0][1]:g}{steps}H{end_x:g}"
    return Sparkline(path, end_x, end_y, _words(records, time))


def _words(records: Sequence[Mapping[str, Any]], time: TimeFormat) -> str:
    first, last = records[0], records[-1]
    return (
        f"{count_text(len(records), 'record')}, "
        f"from {time(first['tta_seconds'])} on {day(first['date'])} "
        f"down to {time(last['tta_seconds'])} on {day(last['date'])}"
    )
