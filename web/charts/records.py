"""Records over time: the chart of a board."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from finishline.rules.ranking import evidence_words
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from web.charts import parts as draw
from web.charts.parts import Chart, Table, Trace, View
from web.formats import TimeFormat, day, moment
from web.names import byline, entry_title, hardware

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FEW_DAYS = 6  # Ticks are a day apart in so short a time.
FEWEST_POINTS = 2
MOST_NAMED = 8  # More names would overlap.
ONE_POINT = "There is one record: a line needs two."
NOTHING = "No record has been set here yet: the first ranked submission sets it."


def records_chart(view: View) -> Chart:
    """Time or quality by date: the records of each board as steps, other better ones as marks."""
    divisions, note, time = view["divisions"], view["note"], view["time"]
    named = list(zip(board_names(divisions), divisions, strict=True))
    marks = [mark for each in divisions for mark in (*each["records"], *each["not_records"])]
    if len(marks) < FEWEST_POINTS:
        return draw.empty(ONE_POINT if marks else NOTHING, Table())
    dates = [mark["date"] for mark in marks]
    seconds = [max(mark["tta_seconds"], SHORTEST_SECONDS) for mark in marks]
    low, high = (math.log10(end(seconds) / time.scale) for end in (min, max))
    margin = 0.12 * (high - low) or 0.1
    room = {"range": [low - margin, high + margin]}  # Two lines of a name are below the last.
    is_named = sum(len(each["records"]) for each in divisions) <= MOST_NAMED
    traces = []
    for order, (name, division) in enumerate(named):
        records, others = division["records"], division["not_records"]
        if records:
            traces.append(_steps(name, records, order, time, max(dates), is_named=is_named))
        if others:
            shown = {"showlegend": not records, "symbol": "circle-open"}
            traces.append(_marks(name, others, "status-attention", time, size=9, **shown))
    return draw.chart(
        traces,
        Table(),
        xaxis=_date_axis(dates),
        yaxis=draw.axis(time.title)
        if time.quality_unit
        else draw.time_axis(time, "Time to accuracy", seconds) | room,
        height=420,
        margin={"l": 48, "r": 16, "t": 56, "b": 48},  # Two lines of a name are above the first.
        showlegend=len(named) > 1,
        meta={"note": note} if note else {},
    )


def board_names(divisions: Sequence[View]) -> list[str]:
    """Name of each list of records: its division, and its hardware class if there are several."""
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
        return draw.axis(f"{day(dates[0])}, UTC", **found, tickformat="%H:%M")
    if last - first < FEW_DAYS * DAY:
        found |= {"dtick": DAY / timedelta(milliseconds=1)}
    return draw.axis("Date", **found, tickformat="%-d %b<br>%Y")


def _steps(
    name: str,
    records: Sequence[View],
    order: int,
    time: TimeFormat,
    latest: str,
    *,
    is_named: bool,
) -> Trace:
    # Records have marks and names. The end of the last step has none.
    names = [f"{time.ranked(each)}<br>{draw.label(entry_title(each))}" for each in records]
    places = ["top right" for _ in records[:-1]] + [
        "middle left" if len(records) > 1 else "top right"
    ]
    return _marks(
        name,
        [*records, {**records[-1], "date": latest}],
        f"status-{records[-1]['evidence']}",
        time,
        symbol="circle",
        size=[*(11 for _ in records), 0],
        mode="lines+markers+text" if is_named else "lines+markers",
        line={"shape": "hv", "dash": draw.series_marks(order)["dash"]},
        text=[*names, ""],
        textposition=[*places, places[-1]],
        cliponaxis=False,
    )


def _marks(name: str, marks: Sequence[View], paint: str, time: TimeFormat, **look: Any) -> Trace:
    return draw.dots(
        name,
        [mark["date"] for mark in marks],
        [(time.figure(mark) or 0.0) / time.scale for mark in marks],
        paint,
        hover="%{hovertext}<extra></extra>",
        hovertext=[_text(mark, time) for mark in marks],
        customdata=[draw.address_of(mark) for mark in marks],
        **look,
    )


def _text(mark: View, time: TimeFormat) -> str:
    lines = [
        draw.plain(mark["model"], longest=60),
        draw.label(f"{byline(mark)}, {hardware(mark)}"),
        f"{time.ranked(mark)}, {day(mark['date'])}, {evidence_words(mark)}",
    ]
    if reason := mark.get("reason"):
        lines.append(draw.plain(reason, longest=90))
    elif mark["margin_percent"] is not None:
        lines.append(f"{mark['margin_percent']:.1f} % faster than the record before")
    elif mark.get("margin") is not None:
        lines.append(f"{time.gap(mark['margin'])} better than the record before")
    return "<br>".join(lines)
