"""Pieces of every figure: colours by name, axes, thinned points, the same as a table."""

import html
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finishline.rules.ranking import check_of_row
from web.formats import DASH, SECONDS, TimeFormat
from web.names import accelerator_of_system, byline, entry_title, hardware

Figure = dict[str, Any]
View = Mapping[str, Any]
TRANSPARENT = "rgba(0,0,0,0)"
SERIES_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SERIES_SYMBOLS = ("circle", "square-open", "diamond", "triangle-up-open", "cross", "x", "star-open")
SYMBOLS = {
    "measured": "circle",
    "published": "square",
    "claimed": "circle-open",
    "contradicted": "x",
}
LONGEST_LABEL = 32
VENDORS = ("NVIDIA", "AMD", "Google", "Intel")
_FEWEST_TICKS = 3
# Seconds that read well as H:MM:SS, and fewer of them for ranges of several powers of ten.
_HOURS = (1, 2, 5, 10, 20, 50, 100, 200)
_ROUND_TIMES: tuple[tuple[float, ...], ...] = (
    (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, *(3600 * hours for hours in _HOURS)),
    (1, 5, 10, 30, 60, 300, 600, 1800, *(3600 * hours for hours in (1, 5, 10, 50, 100))),
    (1, 10, 60, 600, *(3600 * hours for hours in (1, 10, 100))),
)
_MOST_TIMES = 7
_LOG_STEPS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8))
_WIDE_RANGE = 20.0  # From this ratio of largest to smallest on, an axis is logarithmic.


def evidence_group(row: Mapping[str, Any]) -> str:
    """The word that a row is drawn under: its evidence, or that it was contradicted."""
    if check_of_row(row) == "contradicted":
        return "contradicted"
    return str(row.get("evidence", "claimed"))


def plain(text: object, *, longest: int = 200) -> str:
    """A stranger's text for Plotly, which would read tags in it as its own markup."""
    words = str(text)
    cut = words if len(words) <= longest else words[: longest - 1] + "…"
    return html.escape(cut, quote=False)


def label(text: object) -> str:
    """A stranger's text, short enough for an axis or a legend."""
    return plain(text, longest=LONGEST_LABEL)


def axis(
    title: str, values: Iterable[float] = (), *, is_log: bool = False, **more: Any
) -> dict[str, Any]:
    """An axis; logarithmic where its values are positive and differ widely, or `is_log` asks.

    Around a single value Plotly draws one unit to each side. That would go below zero for a small
    amount, which stands halfway between zero and its double instead.
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
        "title": {"text": title, "standoff": 10},
        "automargin": True,
        "exponentformat": "none",
        **kind,
        **more,
    }


def time_axis(time: TimeFormat, title: str, seconds: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis of times in the unit of a board, or as on a stopwatch."""
    known = [second / time.scale for second in seconds]
    found = axis(f"{title} ({time.word})", known, is_log=True)
    if time.is_stopwatch and "tickvals" in found:
        ticks = time_ticks(time, min(known), max(known))
        found |= {"tickvals": ticks, "ticktext": list(map(time, ticks))}
        found["title"] |= {"text": title}
    return found


def time_ticks(time: TimeFormat, low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis in the unit of the times; a stopwatch has round times."""
    if not time.is_stopwatch:
        return log_ticks(low, high)
    choices = [[at for at in times if low <= at <= high] for times in _ROUND_TIMES]
    return next((found for found in choices if len(found) <= _MOST_TIMES), choices[-1]) or [
        low,
        high,
    ]


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


def vendor_of(entry: View) -> str:
    """The vendor of an entry's accelerators, or "other"."""
    return accelerator_of_system(entry["system"]).vendor or "other"


def vendor_paint(vendor: str) -> str:
    """The colour of a vendor; those without one of their own share a colour."""
    return f"vendor-{vendor.lower() if vendor in VENDORS else 'other'}"


def layout(**more: Any) -> dict[str, Any]:
    """A layout without a background, so that the page shows through in light and dark."""
    return {
        "paper_bgcolor": TRANSPARENT,
        "plot_bgcolor": TRANSPARENT,
        "margin": {"l": 56, "r": 16, "t": 12, "b": 48},
        "hovermode": "closest",
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 0,
            "yref": "container",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        **more,
    }


def target_line(target: Mapping[str, Any]) -> dict[str, Any]:
    """The quality target across the whole plot, with its value beside it."""
    return {
        "type": "line",
        "name": "target",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": target["value"],
        "y1": target["value"],
        "line": {"width": 1.5, "dash": "dash"},
        "label": {
            "text": f"target {target['value']:g}",
            "textposition": "start",
            "yanchor": "top",
        },
    }


def band_traces(
    points: Sequence[Mapping[str, Any]], at: Sequence[float], *, view: str
) -> list[dict[str, Any]]:
    """The control-point band as a filled area, `at` giving the place of each point."""
    if not points:
        return []
    edge: dict[str, Any] = {"type": "scatter", "mode": "lines", "x": list(at)}
    meta = {"paint": "band", "view": view}
    lower = {
        **edge,
        "name": "lower limit",
        "y": [point["lower"] for point in points],
        "showlegend": False,
        "hovertemplate": "at least %{y:.5~g}<extra>band</extra>",
        "meta": meta,
    }
    upper = {
        **edge,
        "name": "control-point band",
        "y": [point["upper"] for point in points],
        "fill": "tonexty",
        "hovertemplate": "at most %{y:.5~g}<extra>band</extra>",
        "meta": meta,
    }
    return [lower, upper]


def quality_axis(target: Mapping[str, Any]) -> dict[str, Any]:
    """The axis of a quality; it stays within the metric's range, however wide the band."""
    largest = {"percent": 100, "fraction": 1}.get(target["unit"])
    unit = "%" if target["unit"] == "percent" else plain(target["unit"])
    more: dict[str, Any] = {}
    if largest is not None:
        more["autorangeoptions"] = {"clipmin": 0, "clipmax": largest * 1.02}
    return axis(f"{plain(target['metric'])} ({unit})", **more)


def empty_figure(sentence: str) -> Figure:
    """Empty figure with a sentence instead of a chart, such as on the runs that it needs."""
    return {"data": [], "layout": {"meta": {"empty": sentence}}}


def series_marks(order: int) -> dict[str, Any]:
    """Dash and symbol of the series of that order, to tell it apart without its colour."""
    return {
        "dash": SERIES_DASHES[order % len(SERIES_DASHES)],
        "symbol": SERIES_SYMBOLS[order % len(SERIES_SYMBOLS)],
    }


def names_of(
    entries: Sequence[Mapping[str, Any]], written: Callable[[object], str] = label
) -> dict[str, str]:
    """A name for each of a few board entries: rank, hardware, and the word that tells most apart.

    It is `written` for Plotly unless told otherwise; a template escapes for itself.
    """
    ways = (
        [hardware(entry) for entry in entries],
        [f"{hardware(entry)}, {byline(entry)}" for entry in entries],
        [f"{hardware(entry)}, {entry['system']['name']}" for entry in entries],
        [f"{hardware(entry)}, {entry['model']}" for entry in entries],
    )
    chosen = max(ways, key=lambda names: len(set(names)))
    ranks = ["" if entry["rank"] is None else f"{entry['rank']}. " for entry in entries]
    return {
        entry["submission_id"]: rank + written(own)
        for entry, rank, own in zip(entries, ranks, chosen, strict=True)
    }


MOST_POINTS = 500


def thin_entries(
    entries: Sequence[View], front: Collection[str], *, most: int = MOST_POINTS
) -> list[View]:
    """At most so many entries in their order: the front, then the verified, then even steps.

    All of them where they are no more than that.
    """
    if len(entries) <= most:
        return list(entries)
    first = [e for e in entries if e["submission_id"] in front]
    second = [
        e for e in entries if e.get("evidence") == "measured" and e["submission_id"] not in front
    ]
    kept = {e["submission_id"] for e in (first + even_sample(second, most - len(first)))[:most]}
    others = [e for e in entries if e["submission_id"] not in kept]
    kept |= {e["submission_id"] for e in even_sample(others, most - len(kept))}
    return [entry for entry in entries if entry["submission_id"] in kept]


def even_sample(values: Sequence[Any], most: int) -> list[Any]:
    """At most so many values in their order and evenly apart, the first and the last among them."""
    if len(values) <= most:
        return list(values)
    if most < 2:
        return list(values[: max(most, 0)])
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def thinning_note(drawn: int, known: int) -> str | None:
    """Note for a caption where not everything is drawn; None where it is."""
    if drawn == known:
        return None
    return (
        f"{drawn:,} of {known:,} shown: the front, the verified and an even sample of the others."
    )


def number_of(point: View, place: int) -> int:
    """Number of a point's evaluation in its run, from 1; its place where none is left out."""
    return int(point.get("index", place))


class Curves:
    """Curves over time, and over epochs, or evaluations where a log does not tell epochs.

    A curve is a list of evaluations (epoch, seconds, quality, and their "index" where some are left
    out).
    """

    def __init__(self, curves: Sequence[Sequence[View]], time: TimeFormat = SECONDS) -> None:
        self.time = time
        self.by_epoch = all(point["epoch"] is not None for curve in curves for point in curve)
        self.progress = "epochs" if self.by_epoch else "evaluations"

    def traces(
        self, curve: Sequence[View], look: Mapping[str, Any], *, most: int, **meta: Any
    ) -> list[dict[str, Any]]:
        """A curve once for each view, with at most so many points."""
        drawn = even_sample(list(enumerate(curve, start=1)), most)
        places = {
            "seconds": [point["seconds"] / self.time.scale for _, point in drawn],
            self.progress: [
                float(point["epoch"]) if self.by_epoch else number_of(point, place)
                for place, point in drawn
            ],
        }
        return [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "hovertemplate": "%{y:.5~g} at %{x:.4~g}",
                **look,
                "x": at,
                "y": [point["quality"] for _, point in drawn],
                "meta": {**meta, "view": view},
            }
            for view, at in places.items()
        ]

    def figure(
        self,
        data: Sequence[dict[str, Any]],
        target: View,
        *,
        height: int = 420,
        progress_first: bool = False,
    ) -> Figure:
        """The figure of such traces, with the target and a button for each view."""
        unit = self.time.word
        views = [
            {"name": "seconds", "label": unit, "title": f"Time on the clock ({unit})"},
            {"name": self.progress, "label": self.progress, "title": self.progress.capitalize()},
        ]
        if progress_first:
            views.reverse()
        return {
            "data": list(data),
            "layout": layout(
                xaxis=axis(views[0]["title"]),
                yaxis=quality_axis(target),
                shapes=[target_line(target)],
                height=height,
                meta={"views": views},
            ),
        }


def left_out(runs: Sequence[View]) -> str | None:
    """Note for a page that leaves out evaluations of its runs; None where it shows each."""
    known = sum(run.get("evaluations", len(run["curve"])) for run in runs)
    shown = sum(len(run["curve"]) for run in runs)
    if shown == known:
        return None
    return f"{shown:,} of {known:,} evaluations are shown, evenly spaced; the logs have all."


@dataclass(frozen=True)
class Column:
    """A column's heading; figures stand to the right."""

    title: str
    is_figure: bool = False


@dataclass(frozen=True)
class Row:
    """The texts of a row, the first of them a link where there is an `address`."""

    cells: tuple[str, ...]
    address: str | None = None


@dataclass(frozen=True)
class Table:
    """A chart's figures, one row for each point that is drawn and each that was left out."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

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


def columns(*texts: str, figures: Sequence[str] = ()) -> tuple[Column, ...]:
    """Columns of text and, after them, columns of figures."""
    return (*(Column(title) for title in texts), *(Column(title, True) for title in figures))


def submission_row(entry: View, *cells: str) -> Row:
    """A row that begins with a submission, its submitter and its hardware."""
    first = (entry_title(entry), byline(entry), hardware(entry))
    return Row((*first, *cells), f"/submissions/{entry['submission_id']}")
