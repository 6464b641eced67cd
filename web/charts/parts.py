"""Pieces of every chart: a figure with its table, traces, axes, names of entries."""

import html
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finishline.rules.benchmarks.quality import metric_words
from finishline.rules.ranking import check_of_row
from web.formats import DASH, TimeFormat
from web.names import byline, entry_title, hardware

Figure = dict[str, Any]
Trace = dict[str, Any]
View = Mapping[str, Any]
SERIES_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SERIES_SYMBOLS = ("circle", "square-open", "diamond", "triangle-up-open", "cross", "x", "star-open")
SYMBOLS = {
    "measured": "circle",
    "published": "square",
    "claimed": "circle-open",
    "contradicted": "x",
}
LINE, MOST_LINES = 36, 3
# A run is a thin line of one colour: many of them show where runs meet.
LOOK = {"width": 1.25, "opacity": 0.6, "marker": {"size": 5}}
RUN: dict[str, Any] = {"mode": "lines+markers"} | LOOK
_FEWEST_TICKS = 3
_LOG_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8))
_WIDE_RANGE = 20.0  # From this ratio of largest to smallest on, an axis is logarithmic.


@dataclass(frozen=True)
class Row:
    """The texts of a row, the first of them a link where there is an `address`."""

    cells: tuple[str, ...]
    address: str | None = None


@dataclass(frozen=True)
class Table:
    """The figures of a chart: a row for each point that is drawn, and each that was left out.

    A column has its heading, and whether it has figures, aligned to the right.
    """

    columns: tuple[tuple[str, bool], ...] = ()
    rows: tuple[Row, ...] = ()

    def without_empty_columns(self) -> "Table":
        """The same table without the columns that have a dash in every row."""
        if not self.rows:
            return self
        cells = zip(*(row.cells for row in self.rows), strict=True)
        kept = [place for place, column in enumerate(cells) if set(column) != {DASH}]
        return Table(
            tuple(self.columns[place] for place in kept),
            tuple(
                replace(row, cells=tuple(row.cells[place] for place in kept)) for row in self.rows
            ),
        )


@dataclass(frozen=True)
class Chart:
    """A figure for Plotly, ready to be sent as JSON, and the same figures as a table.

    `layout.meta.views` names its views, such as seconds and epochs, and a trace's `meta.view` one.
    """

    figure: Figure
    table: Table

    @property
    def meta(self) -> dict[str, Any]:
        """The page reads `views`, and words `about` the figure or why it is `empty`."""
        found: dict[str, Any] = self.figure["layout"].get("meta", {})
        return {"empty": None, "views": (), "about": None} | found


def chart(traces: Iterable[Trace], table: Table, **layout: Any) -> Chart:
    """A chart without a background, so that the page shows through in light and dark."""
    known = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 48, "r": 16, "t": 32, "b": 48},
        "hovermode": "closest",
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
    }
    return Chart({"data": list(traces), "layout": known | layout}, table)


def empty(sentence: str, table: Table) -> Chart:
    """A sentence instead of a figure, such as on the runs that it needs."""
    return Chart({"data": [], "layout": {"meta": {"empty": sentence}}}, table)


def line(
    name: str,
    x: Iterable[Any],
    y: Iterable[Any],
    paint: str | int,
    *,
    width: float = 2,
    hover: str | None = None,
    meta: Mapping[str, Any] | None = None,
    **more: Any,
) -> Trace:
    """A line. `paint` names its colour. A number is of a series.

    Without `hover`, a template of Plotly, nothing is told of its points.
    """
    told = {"hoverinfo": "skip"} if hover is None else {"hovertemplate": hover}
    of = {"paint": "series", "series": paint} if isinstance(paint, int) else {"paint": paint}
    own = {"width": width} | more.pop("line", {})
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": own,
        "meta": of | dict(meta or {}),
        **told,
        **more,
    }


def in_views(
    name: str,
    places: Mapping[str, Iterable[float]],
    heights: Sequence[float],
    paint: str | int,
    *,
    meta: Mapping[str, Any] | None = None,
    **look: Any,
) -> list[Trace]:
    """A line once for each view, which has its own places."""
    return [
        line(name, at, heights, paint, meta={**(meta or {}), "view": view}, **look)
        for view, at in places.items()
    ]


def dots(
    name: str,
    x: Iterable[Any],
    y: Iterable[Any],
    paint: str | int,
    *,
    symbol: object = "circle",
    size: object = 11,
    edge: float = 2,
    hover: str = "%{text}<extra></extra>",
    **more: Any,
) -> Trace:
    """Marks without a line. Their `text` is told, and `customdata` has the address of each."""
    marker = {"symbol": symbol, "size": size, "line": {"width": edge}}
    found = line(name, x, y, paint, hover=hover, marker=marker, **({"mode": "markers"} | more))
    if found["mode"] == "markers":
        del found["line"]
    return found


def evidence_group(row: View) -> str:
    """The word that a row is drawn under: its evidence, or that it was contradicted."""
    if check_of_row(row) == "contradicted":
        return "contradicted"
    return str(row.get("evidence", "claimed"))


def plain(text: object, *, longest: int = 200) -> str:
    """A stranger's text for Plotly, which would read tags in it as its own markup."""
    words = str(text)
    cut = words if len(words) <= longest else words[: longest - 1] + "…"
    return html.escape(cut, quote=False)


def label(text: object, lines: int = MOST_LINES) -> str:
    """A stranger's text in short lines. The last keeps the end, which tells names apart."""
    found = textwrap.wrap(str(text), LINE)
    if len(found) > lines:
        end = str(text)[1 - LINE :]
        found[lines - 1 :] = [f"…{end.partition(' ')[2] or end}"]
    return "<br>".join(map(plain, found))


def told(entry: View, *figures: str) -> str:
    """The text of an entry's mark: its title, who and where, and its figures."""
    who = f"{label(byline(entry))}, {label(hardware(entry))}"
    return "<br>".join((plain(entry_title(entry), longest=60), who, *figures))


def address_of(entry: View) -> str:
    """The address of a submission's page."""
    return f"/submissions/{entry['submission_id']}"


def axis(
    title: str, values: Iterable[float] = (), *, is_log: bool = False, **more: Any
) -> dict[str, Any]:
    """An axis. Logarithmic where its values are positive and differ widely, or `is_log` asks.

    Around a single value Plotly draws one unit to each side. That would go below zero for a small
    amount, which is halfway between zero and its double instead.
    """
    known = list(values)
    positive = bool(known) and min(known) > 0
    kind: dict[str, Any] = {}
    if positive and (is_log or max(known) / min(known) >= _WIDE_RANGE):
        # Level: labels that turn when they come close change the margin, and turn back for it.
        kind = {"type": "log", "tickmode": "array", "tickangle": 0}
        kind["tickvals"] = log_ticks(min(known), max(known))
    elif positive and max(known) == min(known) <= 1:
        kind = {"range": [0, 2 * max(known)]}
    return {
        # The margin grows with the labels, and the title keeps off them.
        "title": {"text": f"{title}{', log scale' if 'type' in kind else ''}", "standoff": 10},
        "automargin": True,
        "exponentformat": "none",
        **kind,
        **more,
    }


def time_axis(time: TimeFormat, title: str, seconds: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis of times in the unit of a board."""
    return axis(f"{title} ({time.word})", (s / time.scale for s in seconds), is_log=True)


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks that are written out: powers of ten, or as many between them as a range needs.

    Plotly would write a small 2 and 5 between powers of ten, to be read as multiples of them. A
    range that has none of them is divided evenly.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in _LOG_STEPS:
        ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        if sum(low <= tick <= high for tick in ticks) >= _FEWEST_TICKS:
            return ticks
    step = 10.0 ** math.floor(math.log10((high - low) / 2)) if high > low else low
    ticks = [step * n for n in range(math.floor(low / step), math.ceil(high / step) + 1)]
    return ticks[:: max(1, len(ticks) // 5)]


def named_axis(names: Sequence[str], *, is_from_top: bool = False, **more: Any) -> dict[str, Any]:
    """An axis with a name at each whole number from 0."""
    ends = [-0.6, len(names) - 0.4]
    known = {"tickmode": "array", "tickvals": list(range(len(names))), "ticktext": list(names)}
    known["range"] = ends[::-1] if is_from_top else ends
    return axis("", **(known | more))


def quality_axis(target: View) -> dict[str, Any]:
    """The axis of a quality. It stays within the metric's range, however wide the band."""
    largest = {"percent": 100, "fraction": 1}.get(target["unit"])
    unit = "%" if target["unit"] == "percent" else plain(target["unit"])
    more: dict[str, Any] = {}
    if largest is not None:
        more["autorangeoptions"] = {"clipmin": 0, "clipmax": largest * 1.02}
    return axis(f"{plain(metric_words(target['metric']))} ({unit})", **more)


def target_lines(target: View) -> list[dict[str, Any]]:
    """The quality target across the whole plot, with its value at its end. None with a budget."""
    if target.get("budget_seconds") is not None:
        return []
    value = target["value"]
    shape = {
        "type": "line",
        "name": "target",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": {"width": 1.5, "dash": "dash"},
        "label": {"text": f"{value:g}"},
    }
    return [shape]


def band_traces(points: Sequence[View], at: Sequence[float], *, view: str) -> list[Trace]:
    """The control-point band as a filled area, `at` giving the place of each point."""

    def edge(name: str, side: str, words: str, **more: Any) -> Trace:
        heights = [point[side] for point in points]
        hover = f"{words} %{{y:.5~g}}<extra>band</extra>"
        return line(name, at, heights, "band", hover=hover, meta={"view": view}, **more)

    lower = edge("lower limit", "lower", "at least", showlegend=False)
    upper = edge("control-point band", "upper", "at most", fill="tonexty")
    return [lower, upper] if points else []


def series_marks(order: int) -> dict[str, Any]:
    """Dash and symbol of the series of that order, to tell it apart without its colour."""
    return {
        "dash": SERIES_DASHES[order % len(SERIES_DASHES)],
        "symbol": SERIES_SYMBOLS[order % len(SERIES_SYMBOLS)],
    }


def names_of(entries: Sequence[View], written: Callable[[object], str] = label) -> dict[str, str]:
    """A name for each of a few entries, `written` for Plotly: rank, title, and what tells most."""
    titles = [entry_title(entry) for entry in entries]
    facts = (byline, hardware, lambda entry: entry["system"]["name"], lambda entry: entry["model"])
    ways = [titles]
    for fact in facts:
        ways.append([f"{title}, {fact(e)}" for title, e in zip(titles, entries, strict=True)])
    chosen = max(ways, key=lambda names: len(set(names)))
    ranks = ["" if entry["rank"] is None else f"{entry['rank']}. " for entry in entries]
    return {
        entry["submission_id"]: rank + written(own)
        for entry, rank, own in zip(entries, ranks, chosen, strict=True)
    }


def even_sample(values: Sequence[Any], most: int) -> list[Any]:
    """At most so many values in their order and evenly apart, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    if most < 2:
        return list(values[: max(most, 0)])
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def table(rows: Iterable[Row], *texts: str, figures: Sequence[str] = ()) -> Table:
    """A table with columns of text and, after them, columns of figures."""
    columns = [*((title, False) for title in texts), *((title, True) for title in figures)]
    return Table(tuple(columns), tuple(rows))


def entry_table(rows: Iterable[Row], *texts: str, figures: Sequence[str] = ()) -> Table:
    """The same of rows that each begin with a submission, its submitter and its hardware."""
    return table(rows, "Submission", "Submitter", "Hardware", *texts, figures=figures)


def entry_row(entry: View, *cells: str) -> Row:
    """A row that begins with a submission, its submitter and its hardware."""
    first = (entry_title(entry), byline(entry), hardware(entry))
    return Row((*first, *cells), address_of(entry))
