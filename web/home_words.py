"""Benchmarks by family and by round, and the console's pages by section."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from finishline.rules.benchmarks.accelerators import Accelerator
from finishline.rules.ranking import ranked_seconds
from web.formats import number
from web.names import byline

View = Mapping[str, Any]
DAWNBENCH, ELSEWHERE = (0,), (-1,)
_MLPERF = re.compile(r"mlperf-v([0-9]+)\.([0-9]+)-")


@dataclass(frozen=True)
class Family:
    """Benchmarks that belong together: rows for those of interest, the others by name."""

    round_id: str
    name: str
    rows: tuple[View, ...]
    waiting: tuple[View, ...]


OPEN = "open"
NAMES = {
    (): (OPEN, "Open"),
    DAWNBENCH: ("dawnbench", "DAWNBench 2017–2020"),
    ELSEWHERE: ("elsewhere", "Published elsewhere"),
}


def families(benchmarks: Sequence[View]) -> list[Family]:
    """Our own benchmarks first, then each round of MLPerf, the newest first, then DAWNBench.

    A benchmark of ours that an archive has results of is in two families, one for each round.
    Within a family the boards with submissions stand first. Our own are all rows, because a
    newcomer can take part in them.
    """
    rounds = {_round_of(benchmark) for benchmark in benchmarks}
    own = [()] if () in rounds else []
    ordered = own + sorted((r for r in rounds if r), reverse=True)
    return [_family(place, [b for b in benchmarks if _round_of(b) == place]) for place in ordered]


def shown_families(benchmarks: Sequence[View], chosen: str | None) -> list[Family]:
    """The families of the first page: our own and a round, the newest that has a submission.

    A round may be `chosen` by its id. "all" chooses every one, those without a submission too.
    """
    found = families(benchmarks)
    if chosen == "all":
        return found
    rounds = [family for family in found if family.round_id != OPEN and family.rows]
    named = [family for family in rounds if family.round_id == chosen] or rounds[:1]
    return [family for family in found if family.round_id == OPEN] + named


def short_title(benchmark: View) -> str:
    """A title without the name of its family, which stands above it."""
    return re.sub(r" \(MLPerf v[0-9.]+\)$", "", str(benchmark["title"]))


def round_id(benchmark: View) -> str:
    """The id of the round that a benchmark belongs to, "v5.1". "open" of our own."""
    return _names(_round_of(benchmark))[0]


def round_name(benchmark: View) -> str | None:
    """The round that a benchmark belongs to, "MLPerf v5.1". None of our own."""
    place = _round_of(benchmark)
    return _names(place)[1] if place else None


def _round_of(benchmark: View) -> tuple[int, ...]:
    match = _MLPERF.match(str(benchmark["id"]))
    if not match and benchmark.get("round") == "archive":
        return DAWNBENCH if benchmark["clock"] == "dawnbench" else ELSEWHERE
    return (int(match[1]), int(match[2])) if match else ()


def _family(place: tuple[int, ...], benchmarks: Sequence[View]) -> Family:
    used = [b for b in benchmarks if b["submissions"]]
    unused = [b for b in benchmarks if not b["submissions"]]
    if not place:
        return Family(*_names(place), (*used, *unused), ())
    return Family(*_names(place), tuple(used), tuple(unused))


def _names(place: tuple[int, ...]) -> tuple[str, str]:
    """The id and the name of a round."""
    version = ".".join(map(str, place))
    return NAMES.get(place) or (f"v{version}", f"MLPerf v{version}")


# Sections of the console, each with its pages: name, address, label.
CONSOLE = (
    ("Overview", (("overview", "/console", "To do"), ("decide", "/console/decide", "Decide"))),
    (
        "Submissions",
        (
            ("submissions", "/console/submissions", "List"),
            ("verify", "/console/verify", "Verify"),
            ("head_to_heads", "/console/head-to-heads", "Head-to-heads"),
        ),
    ),
    (
        "Benchmarks",
        (
            ("phases", "/console/phases", "Phases"),
            ("benchmarks", "/console/benchmarks", "Definitions"),
            ("calibrations", "/console/calibrations", "Calibrations"),
            ("prices", "/console/prices", "Prices"),
        ),
    ),
    ("Workers", (("workers", "/console/workers", "Workers"),)),
    (
        "People",
        (
            ("users", "/console/users", "Users"),
            ("invitations", "/console/invitations", "Invite"),
            ("quotas", "/console/quotas", "Quotas"),
            ("tokens", "/console/tokens", "Tokens"),
        ),
    ),
    ("Log", (("audit", "/console/audit", "Audit log"),)),
    (
        "Account",
        (
            ("account", "/account", "Your account"),
            ("notices", "/console/notices", "Notices"),
        ),
    ),
)
ORGANISERS = ("organiser", "admin")
SUBMITTERS = ("account", "notices")


@dataclass(frozen=True)
class ConsoleSection:
    """A section of the console with the pages that a user may open."""

    label: str
    pages: tuple[tuple[str, str, str], ...]


def console_sections_of(role: str) -> list[ConsoleSection]:
    """The sections in the navigation of a user with a role. None is empty."""
    own = [
        ConsoleSection(label, tuple(page for page in pages if _may_open(role, page[0])))
        for label, pages in CONSOLE
    ]
    return [section for section in own if section.pages]


def _may_open(role: str, name: str) -> bool:
    if role in ORGANISERS:
        return True
    return name == "account" or (role == "submitter" and name in SUBMITTERS)


Shown = Literal["minutes", "per-accelerator", "speed-up"]
_FEWEST_MINUTES = 0.1  # Below this, two decimals of a minute say too little.
SHOWN: dict[Shown, str] = {
    "minutes": "Minutes",
    "per-accelerator": "Accelerator-minutes",
    "speed-up": "Speed-up over the slowest",
}


@dataclass(frozen=True)
class Cell:
    """A result: its figure, the submission, and whether it is the fastest of its benchmark."""

    text: str
    result: View
    is_fastest: bool


@dataclass(frozen=True)
class SystemRow:
    """A system with a result, or None, for each benchmark of its round."""

    first: View
    accelerator: Accelerator
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Matrix:
    """The benchmarks that have a result, and the systems, those with the most results first."""

    benchmarks: tuple[View, ...]
    systems: tuple[SystemRow, ...]


def round_matrix(benchmarks: Sequence[View], results: Sequence[View], shown: Shown) -> Matrix:
    """The results of one division. Of several of a system on a benchmark the fastest."""
    timed = [result for result in results if ranked_seconds(result)]
    systems: defaultdict[tuple[str, str, str], dict[str, View]] = defaultdict(dict)
    for result in sorted(timed, key=_seconds):
        name = byline(result), result["system"]["name"], result["accelerator"].words
        systems[name].setdefault(result["benchmark"], result)
    present = tuple(b for b in benchmarks if any(b["id"] in cells for cells in systems.values()))
    times = {b["id"]: [_seconds(r) for r in timed if r["benchmark"] == b["id"]] for b in present}
    rows = [_row(cells, present, times, shown) for cells in systems.values()]
    order = sorted(rows, key=lambda row: -sum(cell is not None for cell in row.cells))
    return Matrix(present, tuple(order))


def _row(
    cells: Mapping[str, View],
    benchmarks: Sequence[View],
    times: Mapping[str, Sequence[float]],
    shown: Shown,
) -> SystemRow:
    first = next(iter(cells.values()))
    found = (cells.get(benchmark["id"]) for benchmark in benchmarks)
    return SystemRow(
        first,
        first["accelerator"],
        tuple(
            None
            if result is None
            else Cell(_figure(result, times, shown), result, _is_fastest(result, times))
            for result in found
        ),
    )


def _figure(result: View, times: Mapping[str, Sequence[float]], shown: Shown) -> str:
    seconds, count = _seconds(result), result["accelerator"].count
    if shown == "speed-up":
        return f"{number(max(times[result['benchmark']]) / seconds, 3)}×"
    if shown == "per-accelerator":
        return f"{seconds * count / 60:,.1f}" if count else "–"
    minutes = seconds / 60
    return f"{minutes:,.2f}" if minutes >= _FEWEST_MINUTES else f"{number(seconds, 3)} s"


def _is_fastest(result: View, times: Mapping[str, Sequence[float]]) -> bool:
    return _seconds(result) == min(times[result["benchmark"]])


def _seconds(result: View) -> float:
    return ranked_seconds(result) or 0.0
