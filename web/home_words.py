"""The home page and the console's navigation: benchmarks by family, pages in order."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

View = Mapping[str, Any]
_MLPERF = re.compile(r"mlperf-v([0-9]+)\.([0-9]+)-")


@dataclass(frozen=True)
class Family:
    """Benchmarks that belong together: rows for those of interest, the others by name."""

    round_id: str
    name: str
    rows: tuple[View, ...]
    waiting: tuple[View, ...]


OPEN = "open"


def families(benchmarks: Sequence[View]) -> list[Family]:
    """Our own benchmarks first, then each round of MLPerf, the newest first.

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


def round_name(benchmark: View) -> str | None:
    """The round of MLPerf that a benchmark belongs to: "MLPerf v5.1"."""
    numbers = ".".join(map(str, _round_of(benchmark)))
    return f"MLPerf v{numbers}" if numbers else None


def _round_of(benchmark: View) -> tuple[int, ...]:
    match = _MLPERF.match(str(benchmark["id"]))
    return (int(match[1]), int(match[2])) if match else ()


def _family(place: tuple[int, ...], benchmarks: Sequence[View]) -> Family:
    used = [b for b in benchmarks if b["submissions"]]
    unused = [b for b in benchmarks if not b["submissions"]]
    if not place:
        return Family(OPEN, "Open", (*used, *unused), ())
    version = ".".join(str(number) for number in place)
    return Family(f"v{version}", f"MLPerf v{version}", tuple(used), tuple(unused))


# The steps of a claim: a word of the counters, and the list that a number leads to.
COUNTERS = (
    ("claimed", "Claimed", "#records"),
    ("replaying", "Replaying", "/workers"),
    ("measured", "Measured", "#records"),
    ("contradicted", "Contradicted", "#verdicts"),
)


# Name, address, label.
CONSOLE_PAGES = (
    ("overview", "/console", "Overview"),
    ("verify", "/console/verify", "Verify"),
    ("duels", "/console/duels", "Duels"),
    ("decide", "/console/decide", "Decide"),
    ("calibrations", "/console/calibrations", "Calibrations"),
    ("phases", "/console/phases", "Phases"),
    ("workers", "/console/workers", "Workers"),
    ("prices", "/console/prices", "Prices"),
    ("quotas", "/console/quotas", "Quotas"),
    ("audit", "/console/audit", "Audit log"),
    ("tokens", "/console/tokens", "Tokens"),
    ("users", "/console/users", "Users"),
    ("invitations", "/console/invitations", "Invite"),
    ("submit", "/submit", "Submit"),
    ("notices", "/console/notices", "Notices"),
    ("account", "/account", "Your account"),
)
EVERYBODYS = ("account",)
SUBMITTERS = ("submit", "notices", *EVERYBODYS)
ADMINS_ALONE = ("users",)


def console_pages_of(role: str) -> list[tuple[str, str, str]]:
    """The pages in the navigation of a user with a role."""
    if role == "admin":
        return list(CONSOLE_PAGES)
    if role == "organiser":
        return [page for page in CONSOLE_PAGES if page[0] not in ADMINS_ALONE]
    own = SUBMITTERS if role == "submitter" else EVERYBODYS
    return [page for page in CONSOLE_PAGES if page[0] in own]
