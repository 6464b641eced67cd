"""A leaderboard's tabs and table: columns, words, links, the range of its target."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlencode

from finishline.api.boards import Section
from finishline.rules.benchmarks.quality import LARGEST_QUALITY, UNITS
from finishline.rules.text import significant
from web.formats import TimeFormat, milliseconds, number
from web.home_words import round_name

Entry = Mapping[str, Any]
_GAP = "\u00a0"
_JOULES = ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"))


@dataclass(frozen=True)
class Column:
    """A column by the name it is sorted by.

    It is left out of a board where no entry has one of the figures it `needs`. `css` are the
    classes of its head. `cell` writes the figure of an entry; a column without it stands in
    `web/templates/board.html`. An `is_chosen` one is shown to those who ask for it.
    """

    name: str
    words: str
    css: str = ""
    needs: tuple[str, ...] = ()
    cell: Callable[[Entry], str] | None = None
    is_chosen: bool = False


def _figure(name: str, words: str, field: str, write: Callable[[float | None], str]) -> Column:
    """A column of one figure of an entry."""
    return Column(name, words, f"r wide {name}", (field,), lambda entry: write(entry[field]), True)


def progress(entry: Entry) -> str:
    """The epochs of an entry to the target; its samples where the benchmark counts those."""
    samples = (entry.get("rcp") or {}).get("submission_mean")
    epochs = entry["epochs_to_target"]
    return number(samples, 9) if epochs is None else number(epochs, 3)


def energy(joules: float | None) -> str:
    """Joules with three significant digits, in the unit that leaves the fewest zeros."""
    if joules is None:
        return "–"
    scale, unit = next(((s, u) for s, u in _JOULES if joules >= s), (1.0, "J"))
    return f"{significant(joules / scale, 3)}{_GAP}{unit}"


def rate(per_second: float | None) -> str:
    """Something per second with three significant digits, in full."""
    return "–" if per_second is None else significant(per_second, 3)


TRAIN = (
    Column("rank", "#", "r rank"),
    Column("system", "Entry", "model"),
    Column("tta", "Time, 95 %", "r"),
    Column("best", "× best", "r wide", ("tta_seconds",), is_chosen=True),
    Column("cost", "Cost", "r wide cost", ("cost_usd",), is_chosen=True),
    Column("cv", "Runs", "r wide", is_chosen=True),
    Column("latency", "Latency stated", "r wide", ("latency_ms",), is_chosen=True),
    _figure("measured_latency", "Latency measured", "measured_latency_ms", milliseconds),
    _figure("energy", "Energy", "energy_joules", energy),
    Column("epochs", "Epochs", "r wide", ("epochs_to_target",), progress, True),
    _figure("samples", "Samples/s", "samples_per_second", rate),
    Column("precision", "Precision", "wide", ("precision", "precision_measured"), is_chosen=True),
    Column("division", "Division", "wide", ("division",)),
    Column("status", "Evidence", "wide"),
    Column("submitter", "By", "wide"),
    Column("availability", "Availability", "wide", ("availability",), is_chosen=True),
    Column("date", "Date", "wide", is_chosen=True),
)
INFERENCE = (
    Column("rank", "#", "r rank"),
    Column("system", "Entry", "model"),
    Column("latency", "Latency", "r", ("latency_ms",)),
    replace(
        _figure("measured_latency", "Measured", "measured_latency_ms", milliseconds),
        is_chosen=False,
    ),
    Column("inference_cost", "Cost of 10,000", "r wide cost", ("cost_usd_per_10000",)),
    Column("quality", "Quality", "r wide", ("quality",)),
    Column("division", "Division", "wide", ("division",)),
    Column("status", "Evidence", "wide"),
    Column("submitter", "By", "wide"),
    Column("date", "Date", "wide"),
)
HEADINGS: dict[Section, str] = {
    "ranked": "",
    "elsewhere": "Measured, not numbered on this board",
    "unchecked": "Published, source not checked",
    "claimed": "Claimed, not measured here",
    "unranked": "Not ranked",
}
COLUMNS = {"train": TRAIN, "inference": INFERENCE}
FIGURES = frozenset(name for columns in COLUMNS.values() for c in columns for name in c.needs)


def present_figures(entries: Iterable[Entry]) -> frozenset[str]:
    """The figures that some entry has."""
    return frozenset(name for entry in entries for name in FIGURES if entry.get(name) is not None)


def board_columns(
    kind: str, present: Collection[str], divisions: Collection[str], *, counts: str = "epochs"
) -> list[Column]:
    """The columns that a board of a kind can have, for entries with these figures.

    Divisions are told apart where there are several. A benchmark that counts samples shows those in
    the place of epochs.
    """
    has = set(present) - {"division"} | ({"division"} if len(divisions) > 1 else set())
    if counts == "samples":
        has |= {"epochs_to_target"}
    found = [c for c in COLUMNS[kind] if not c.needs or has.intersection(c.needs)]
    return [replace(c, words=counts.capitalize()) if c.name == "epochs" else c for c in found]


NO_COLUMNS = "none"


def chosen_columns(filters: Mapping[str, Any], metric: str, *, clock: str) -> frozenset[str]:
    """The names of the columns that the address adds; without any, those that the board needs.

    The rounds of DAWNBench were open for years, so a row there has its date.
    """
    if filters.get("columns"):
        return frozenset(str(filters["columns"]).split(","))
    return frozenset(
        name
        for name, is_needed in {
            "cost": metric == "cost",
            "energy": metric == "energy",
            "date": clock == "dawnbench",
        }.items()
        if is_needed
    )


def offered_metrics(kind: str, present: Collection[str], metric: str) -> dict[str, str]:
    """The metrics that a board may be ranked by: energy where some entry has it."""
    has_energy = "energy_joules" in present or metric == "energy"
    return {n: words for n, words in METRICS[kind].items() if n != "energy" or has_energy}


def shown_columns(columns: Iterable[Column], chosen: Collection[str]) -> list[Column]:
    """Those of a board that always stand, and the chosen ones."""
    return [column for column in columns if not column.is_chosen or column.name in chosen]


def column_links(
    columns: Iterable[Column], filters: Mapping[str, Any], chosen: Collection[str]
) -> list[tuple[str, str, bool]]:
    """A link that shows or hides each column which may be chosen, and whether it is shown."""
    optional = [column for column in columns if column.is_chosen]
    links = []
    for one in optional:
        names = [c.name for c in optional if (c.name in chosen) != (c.name == one.name)]
        link = "?" + board_query(filters, columns=",".join(names) or NO_COLUMNS)
        links.append((one.words, link, one.name in chosen))
    return links


def columns_by_name(
    columns: Iterable[Column],
    quality_unit: str,
    time: TimeFormat,
    fastest_seconds: float | None = None,
) -> dict[str, Any]:
    """Facts of a board that its rows need: the columns it has, and the units of its figures."""
    there = {column.name for column in columns}
    has = {c.name: c.name in there for kind in COLUMNS.values() for c in kind}
    return has | {"quality_unit": quality_unit, "time": time, "fastest_seconds": fastest_seconds}


def board_sections(entries: Sequence[Entry]) -> dict[int, str]:
    """Headings of a board in the order of ranks, by the place of the entry below, from 0."""
    headings: dict[int, str] = {}
    before = "ranked"
    for place, entry in enumerate(entries):
        if entry["section"] != before:
            before = entry["section"]
            headings[place] = HEADINGS[before]
    return headings


def why_unranked(entry: Entry) -> str | None:
    """Reason why a row has no number, None where its evidence says it."""
    reason, section = entry.get("unranked_reason"), entry["section"]
    if reason is None or section == "claimed":
        return None
    return str(reason) if section == "elsewhere" else f"not ranked: {reason}"


def nothing_measured(entries: Sequence[Entry]) -> str | None:
    """Sentence above the rows of a board without a number; None for any other board."""
    sections = Counter(entry["section"] for entry in entries)
    if sections["ranked"]:
        return None
    if published := sections["unchecked"]:
        return f"{published:,} published result{'' if published == 1 else 's'} below, not checked."
    if claims := sections["claimed"]:
        return f"Nothing measured yet. {claims:,} claim{'' if claims == 1 else 's'} below."
    return None


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
    *(
        "division",
        "round",
        "status",
        "evidence",
        "check",
        "hardware_class",
        "vendor",
        "accelerator",
    ),
    *("size", "sort", "order", "limit", "columns"),
)
FIRST_ORDER = ("rank", "asc")
USUAL_LIMIT = 50
# The metrics of each kind of board, the one it is ranked by unless told otherwise first.
METRICS = {
    "train": {
        "tta": "time to accuracy",
        "cost": "cost to accuracy",
        "energy": "energy to accuracy",
    },
    "inference": {"latency": "latency of one item", "inference_cost": "cost of 10,000 items"},
}


@dataclass(frozen=True)
class Pages:
    """The pages of a board: each a number or None where it leads nowhere else.

    `first_entry` and `last_entry` are places of the entries shown, both 0 where none is.
    """

    first: int | None
    previous: int | None
    following: int | None
    last: int
    first_entry: int
    last_entry: int


def board_query(filters: Mapping[str, Any], **changes: Any) -> str:
    """The query string of the current filters with changes; empty values are left out."""
    merged = {name: filters.get(name) for name in FILTER_NAMES} | changes
    return urlencode(
        {name: shown_value(value) for name, value in merged.items() if value not in (None, "")}
    )


def shown_value(value: object) -> str:
    """A value as a person would type it: 95, not 95.0."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


def kind_link(filters: Mapping[str, Any], kind: str) -> str:
    """The link to a benchmark's board of a kind; the text searched for is kept."""
    return "?" + board_query({"q": filters.get("q")}, metric=next(iter(METRICS[kind])))


def unfiltered_link(filters: Mapping[str, Any], metric: str) -> str:
    """The link to all rows of the same division and round."""
    kept = {name: filters.get(name) for name in ("division", "round")}
    return "?" + board_query(kept, metric=metric)


def sort_link(filters: Mapping[str, Any], column: str) -> str:
    """The link that sorts by a column, or turns its order round if it is sorted by already."""
    turn = sort_state(filters, column) == "ascending"
    return "?" + board_query(filters, sort=column, order="desc" if turn else "asc")


def sort_state(filters: Mapping[str, Any], column: str) -> str:
    """The aria-sort value of a column; a board that nobody sorted stands by rank."""
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


def _limit_of(filters: Mapping[str, Any]) -> int:
    """Number of entries on a page; the usual one where the typed text is not a number."""
    try:
        return max(1, int(filters.get("limit") or USUAL_LIMIT))
    except ValueError:
        return USUAL_LIMIT


def pages_of(board: Mapping[str, Any], filters: Mapping[str, Any]) -> Pages:
    """Page numbers around the shown page of a board, and the places of its entries."""
    limit, total = _limit_of(filters), board["total"]
    shown, last = len(board["entries"]), max(1, -(-total // limit))
    start = board.get("first") or (1 if shown else 0)
    page = (start - 1) // limit + 1 if shown else last + 1
    return Pages(
        first=1 if page > 1 else None,
        previous=min(page - 1, last) if page > 1 else None,
        following=page + 1 if page < last else None,
        last=last,
        first_entry=start if shown else 0,
        last_entry=start + shown - 1 if shown else 0,
    )


STEPS = 100
# Where no run went beyond the target, a target so much of it away is still of interest.
NARROWEST = 0.01
EASIER = 4.0
SLACK = 1e-9


@dataclass(frozen=True)
class TargetRange:
    """The ends of a slider, easiest and hardest in either order, and its step."""

    low: float
    high: float
    step: float


def target_range(target: Mapping[str, Any], qualities: tuple[float, float] | None) -> TargetRange:
    """From four times as far on the easy side of the target as the best run is on the hard one.

    `qualities` are the lowest and the highest of the best qualities on the board. Each end is a
    multiple of the step, which is one, two or five of a power of ten, and inside the range.
    """
    own, higher = float(target["value"]), target["direction"] == "higher"
    low, high = qualities or (own, own)
    largest = UNITS.get(str(target["unit"])) or LARGEST_QUALITY
    low, high = max(low, 0.0), min(high, largest)  # An archive may have any figure.
    beyond = max((high - own) if higher else (own - low), abs(own) * NARROWEST, 1e-9)
    step = _round_step(beyond * (1.0 + EASIER) / STEPS)
    below, above = (EASIER, 1.0) if higher else (1.0, EASIER)
    return TargetRange(
        low=_at_step(math.ceil(max(0.0, own - below * beyond) / step - SLACK), step),
        high=_at_step(math.floor(min(largest, own + above * beyond) / step + SLACK), step),
        step=step,
    )


def _round_step(wanted: float) -> float:
    power = 10.0 ** math.floor(math.log10(wanted))
    return _at_step(next(f for f in (1, 2, 5, 10) if f * power >= wanted * (1 - SLACK)), power)


def _at_step(steps: int, step: float) -> float:
    """So many steps, without the tail that floating point adds."""
    return float(f"{steps * step:.10g}")


Tab = tuple[str, str, bool]
# A division and a round; None where there is only one.
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
                words = _archive_words(benchmark, kind, division if archives > 1 else None)
            tabs.append((words, link, is_shown))
    return tabs


def board_address(row: Mapping[str, Any]) -> str:
    """The address of the board that numbers a submission.

    Where one was measured its round comes first, and an archive has but one.
    """
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


def _archive_words(benchmark: Mapping[str, Any], kind: str, division: str | None) -> str:
    name = round_name({**benchmark, "round": "archive"})
    parts = ("Inference" if kind == "inference" else None, name, division)
    return ", ".join(part for part in parts if part)
