"""Benchmarks by family and by round."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from finishline.rules.ranking import ranked_seconds
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
    (): (OPEN, "This server's benchmarks"),
    DAWNBENCH: ("dawnbench", "DAWNBench 2017–2020"),
    ELSEWHERE: ("elsewhere", "Published elsewhere"),
}


def families(benchmarks: Sequence[View]) -> list[Family]:
    """Our own benchmarks first, then each round of MLPerf, the newest first, then DAWNBench.

    Within a family the boards with submissions come first. Our own are all rows, because a
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
    """A title without the name of its family, which is above it."""
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


Shown = Literal["first", "minutes", "per-accelerator", "speed-up"]
SHOWN: dict[Shown, str] = {
    "first": "First five",
    "minutes": "Time",
    "per-accelerator": "Accelerator-minutes",
    "speed-up": "Speed-up over the slowest",
}


@dataclass(frozen=True)
class Matrix:
    """The benchmarks that have a time, and the fastest result of each system on them, by id.

    The system with the most results is first. `fastest` and `slowest` are seconds of all results.
    """

    benchmarks: list[View]
    systems: list[dict[str, View]]
    fastest: dict[str, float]
    slowest: dict[str, float]

    @property
    def is_full(self) -> bool:
        """Whether most systems have a time on most benchmarks."""
        return 2 * sum(map(len, self.systems)) >= len(self.systems) * len(self.benchmarks)


def round_matrix(benchmarks: Sequence[View], results: Sequence[View]) -> Matrix:
    """The results of one division. Of several of a system on a benchmark the fastest."""
    timed = sorted(
        (seconds, place) for place, one in enumerate(results) if (seconds := ranked_seconds(one))
    )
    systems: defaultdict[tuple[str, str, str], dict[str, View]] = defaultdict(dict)
    fastest: dict[str, float] = {}
    slowest: dict[str, float] = {}
    for seconds, place in timed:
        result, name = results[place], results[place]["benchmark"]
        system = byline(result), result["system"]["name"], result["accelerator"].words
        systems[system].setdefault(name, result)
        fastest.setdefault(name, seconds)
        slowest[name] = seconds
    present = [benchmark for benchmark in benchmarks if benchmark["id"] in fastest]
    order = sorted(systems.values(), key=len, reverse=True)
    return Matrix(present, order, fastest, slowest)
