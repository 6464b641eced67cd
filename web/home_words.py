"""The home page and the console's navigation: benchmarks by family, pages by section."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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

    A round may be `chosen` by its id; "all" chooses every one, those without a submission too.
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
    """The id of the round that a benchmark belongs to, "v5.1"; "open" of our own."""
    return _names(_round_of(benchmark))[0]


def round_name(benchmark: View) -> str | None:
    """The round that a benchmark belongs to, "MLPerf v5.1"; None of our own."""
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


# The steps of a claim: a word of the counters, and the list that a number leads to.
COUNTERS = (
    ("claimed", "Claimed", "/submissions?evidence=claimed"),
    ("replaying", "Replaying", "/verifications"),
    ("measured", "Measured", "/submissions?evidence=measured"),
    ("contradicted", "Contradicted", "/submissions?verdict=rejected"),
)


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
    """The sections in the navigation of a user with a role; none is empty."""
    own = [
        ConsoleSection(label, tuple(page for page in pages if _may_open(role, page[0])))
        for label, pages in CONSOLE
    ]
    return [section for section in own if section.pages]


def _may_open(role: str, name: str) -> bool:
    if role in ORGANISERS:
        return True
    return name == "account" or (role == "submitter" and name in SUBMITTERS)
