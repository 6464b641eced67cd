"""A leaderboard's tabs and table: columns, words, links, the range of its target."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from finishline.rules.benchmarks.quality import LARGEST_QUALITY, UNITS
from web.formats import round_step
from web.home_words import round_name

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A further figure of a board, by the name it is sorted by. board.html writes it.

    It is offered where some entry has one of the figures it `needs`. Only an `is_usual` one is
    shown by default.
    """

    name: str
    words: str
    needs: tuple[str, ...]
    is_usual: bool = False


COLUMNS = {
    "train": (
        Column("cost", "Cost", ("cost_usd",)),
        Column("cv", "Scatter", ()),
        Column("latency", "Latency stated", ("latency_ms",)),
        Column("measured_latency", "Latency measured", ("measured_latency_ms",)),
        Column("energy", "Energy", ("energy_joules",)),
        Column("epochs", "Epochs", ("epochs_to_target",)),
        Column("samples", "Samples/s", ("samples_per_second",)),
        Column("precision", "Precision", ("precision", "precision_measured")),
        Column("availability", "Availability", ("availability",)),
    ),
    "inference": (
        Column("measured_latency", "Latency measured", ("measured_latency_ms",), is_usual=True),
        Column("quality", "Quality", ("quality",), is_usual=True),
    ),
}


def offered_columns(
    board: Mapping[str, Any], present: Collection[str], *, counts: str = "epochs"
) -> list[Column]:
    """The further columns that a board can have. Samples may replace epochs."""
    has = set(present) | ({"epochs_to_target"} if counts == "samples" else set())
    found = [
        column
        for column in COLUMNS[board["kind"]]
        if column.name != board["metric"] and (not column.needs or has.intersection(column.needs))
    ]
    return [replace(c, words=counts.capitalize()) if c.name == "epochs" else c for c in found]


def asked_columns(filters: Mapping[str, Any]) -> list[str]:
    """The names of the columns that the address adds."""
    return [name for name in str(filters.get("columns") or "").split(",") if name]


def shown_columns(columns: Iterable[Column], filters: Mapping[str, Any]) -> list[Column]:
    """The usual columns, and what the address adds."""
    return [one for one in columns if one.is_usual or one.name in asked_columns(filters)]


def offered_metrics(
    kind: str, present: Collection[str], metric: str, *, by_quality: bool = False
) -> dict[str, str]:
    """The metrics that a board may be ranked by: cost and energy where some entry has them."""
    absent = {"tta" if by_quality else "quality"}
    absent |= {name for name, field in NEEDED.items() if field not in present and name != metric}
    return {name: words for name, words in METRICS[kind].items() if name not in absent}


def why_unranked(entry: Entry) -> str | None:
    """Reason why a row is unranked, unless its evidence says it."""
    reason, section = entry.get("unranked_reason"), entry["section"]
    if reason is None or section in ("claimed", "unchecked"):
        return None
    return str(reason) if section == "elsewhere" else f"not ranked: {reason}"


NARROWING = (
    "division",
    "round",
    "status",
    "evidence",
    "check",
    "hardware_class",
    "vendor",
    "accelerator",
    "size",
    "framework",
    "date_from",
    "date_to",
    "q",
    "best",
)
# Fields that show the board under another clock, at another target or at other prices.
WHAT_IF = ("clock", "target", "price", "prices_on")
FILTER_NAMES = ("metric", *NARROWING, "sort", "order", "limit", *WHAT_IF, "withdrawn", "columns")
# Fields that the form of a board leaves as they are.
KEPT_BY_FORM = (
    *("metric", "division", "round", "status", "check", "hardware_class"),
    *("sort", "order", "limit", "columns"),
)
FIRST_ORDER = ("rank", "asc")
USUAL_LIMIT = 25
# The metrics of each kind of board, by default ranked by the first.
METRICS = {
    "train": {"tta": "time", "quality": "quality", "cost": "cost", "energy": "energy"},
    "inference": {"latency": "latency", "inference_cost": "cost of 10,000"},
}
# The figure without which a metric ranks nothing.
NEEDED = {
    "cost": "cost_usd",
    "energy": "energy_joules",
    "inference_cost": "cost_usd_per_10000",
}


def board_query(filters: Mapping[str, Any], **changes: Any) -> str:
    """The query string of the current filters with changes. Empty values are left out."""
    merged = {name: filters.get(name) for name in FILTER_NAMES} | changes
    return urlencode(
        {name: shown_value(value) for name, value in merged.items() if value not in (None, "")}
    )


def shown_value(value: object) -> str:
    """A value as a person would type it: 95, not 95.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def unfiltered_link(filters: Mapping[str, Any], metric: str) -> str:
    """The link to all rows of the same division and round."""
    kept = {name: filters.get(name) for name in ("division", "round")}
    return "?" + board_query(kept, metric=metric)


def sort_link(filters: Mapping[str, Any], column: str) -> str:
    """The link that sorts by a column, or turns its order round if it is sorted by already."""
    turn = sort_state(filters, column) == "ascending"
    return "?" + board_query(filters, sort=column, order="desc" if turn else "asc")


def sort_state(filters: Mapping[str, Any], column: str) -> str:
    """The aria-sort value of a column. By default a board is sorted by rank."""
    by, order = filters.get("sort") or FIRST_ORDER[0], filters.get("order") or FIRST_ORDER[1]
    if by != column:
        return "none"
    return "descending" if order == "desc" else "ascending"


def is_filtered(filters: Mapping[str, Any]) -> bool:
    """Whether anything narrows a division's board down."""
    those = (name for name in NARROWING if name not in ("division", "round"))
    return any(filters.get(name) not in (None, "") for name in those)


def asks_what_if(filters: Mapping[str, Any]) -> bool:
    """Whether the board is asked for under rules or prices that are not the official ones."""
    return any(filters.get(name) not in (None, "") for name in WHAT_IF)


@dataclass(frozen=True)
class Pages:
    """The shown page of a board, its last page, and the places of the entries, 0 where none is."""

    shown: int
    last: int
    first_entry: int
    last_entry: int


def pages_of(board: Mapping[str, Any], filters: Mapping[str, Any]) -> Pages:
    """Page numbers around the shown page of a board, and the places of its entries."""
    try:
        limit = max(1, int(filters.get("limit") or USUAL_LIMIT))
    except ValueError:  # It was refused.
        limit = USUAL_LIMIT
    shown, last = len(board["entries"]), max(1, -(-board["total"] // limit))
    if not shown:
        return Pages(last + 1, last, 0, 0)
    start = board.get("first") or 1
    return Pages((start - 1) // limit + 1, last, start, start + shown - 1)


STEPS = 100
# Where no run went beyond the target, a target so much of it away is still of interest.
NARROWEST = 0.01
EASIER = 4.0
SLACK = 1e-9


def target_range(
    target: Mapping[str, Any], qualities: tuple[float, float] | None
) -> tuple[float, float, float]:
    """The ends of a slider and its step, which is one, two or five of a power of ten.

    It goes from four times as far on the easy side of the target as the best run is on the hard
    one. `qualities` are the lowest and the highest of the best qualities on the board.
    """
    own, higher = float(target["value"]), target["direction"] == "higher"
    low, high = qualities or (own, own)
    largest = UNITS.get(str(target["unit"])) or LARGEST_QUALITY
    low, high = max(low, 0.0), min(high, largest)  # An archive may have any figure.
    beyond = max((high - own) if higher else (own - low), abs(own) * NARROWEST, 1e-9)
    step = round_step(beyond * (1.0 + EASIER) / STEPS)
    below, above = (EASIER, 1.0) if higher else (1.0, EASIER)
    first = math.ceil(max(0.0, own - below * beyond) / step - SLACK)
    last = math.floor(min(largest, own + above * beyond) / step + SLACK)
    # Without the tail that floating point adds.
    return float(f"{first * step:.10g}"), float(f"{last * step:.10g}"), step


Tab = tuple[str, str, bool]
# A division and a round. None where there is only one.
Part = tuple[str | None, str | None]


def board_tabs(
    benchmark: Mapping[str, Any],
    filters: Mapping[str, Any],
    kinds: Collection[str],
    shown: str,
) -> list[Tab]:
    """Each board of a benchmark: its words, the link to it, and whether it is the one shown.

    Closed is first, an archive last: `published` has the kinds and divisions that it has results
    of. Another kind keeps the text that was searched for.
    """
    tabs = []
    for kind in kinds:
        other = {"q": filters.get("q"), "metric": next(iter(METRICS[kind]))}
        kept = filters if kind == shown else other
        parts = _parts(benchmark, kind)
        for division, part in parts:
            link = "?" + board_query(kept, division=division, round=part)
            is_shown = kind == shown and (
                division in (None, filters.get("division")) and part in (None, filters.get("round"))
            )
            alone = kind == "inference" and len(benchmark["divisions"]) == 1
            words = _division_words(None if alone else division, kind, is_alone=len(kinds) == 1)
            if part == "archive":
                archives = sum(other == "archive" for _, other in parts)
                kind_name = "Inference" if kind == "inference" else None
                name = round_name({**benchmark, "round": "archive"})
                named = (kind_name, name, division if archives > 1 else None)
                words = ", ".join(filter(None, named))
            tabs.append((words, link, is_shown))
    return tabs


def board_address(row: Mapping[str, Any]) -> str:
    """The address of the board that numbers a submission."""
    name, is_inference = str(row["benchmark"]), row.get("kind") == "inference"
    rounds = {} if name.startswith("mlperf-") else {"published": "archive", "claimed": "open"}
    query = board_query(
        {
            "metric": "latency" if is_inference else None,
            "division": row["division"],
            "round": rounds.get(str(row.get("evidence"))),
        }
    )
    return f"/benchmarks/{quote(name)}?{query}"


def _parts(benchmark: Mapping[str, Any], kind: str) -> list[Part]:
    divisions = sorted(benchmark["divisions"], key=lambda name: (name != "closed", name))
    published = benchmark.get("published", ()) if benchmark.get("round") else ()
    archives: list[Part] = [(name, "archive") for name in divisions if (kind, name) in published]
    if archives:
        return [*((name, "open") for name in divisions), *archives]
    return [(name, None) for name in divisions] if len(divisions) > 1 else [(None, None)]


def _division_words(division: str | None, kind: str, *, is_alone: bool) -> str:
    if kind == "inference":
        return f"Inference, {division}" if division else "Inference"
    return division.capitalize() if division else "Leaderboard" if is_alone else "Training"
