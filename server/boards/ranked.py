"""A division's submissions in the order of their ranks, and which of them can be told apart.

The rows of a board are cached for its latest version. After a write only the submissions that
changed are read again, and the board is ordered anew.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from finishline.api.boards import BoardEntry, Section
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import Evidence, Round
from finishline.rules.submissions.claim import Kind
from server.base.board_versions import VersionedCache, board_version, changes_between
from server.base.database import state_of
from server.base.models import Submission
from server.base.viewer import seeing_as_anybody
from server.benchmarks.prices import read_book
from server.benchmarks.queries import round_of, rounds_of
from server.boards.lens import (
    METRICS_OF_RUNS,
    OtherPrice,
    lens_of,
    lens_rows,
    price_of,
    priced_rows,
)
from server.boards.ranking import (
    COST_IS_CLAIMED,
    FIRST_METRIC,
    Order,
    Ranked,
    RankedTime,
    Separated,
    Standing,
    order_of,
    separate,
    why_entry_unranked,
)
from server.boards.records import first_places
from server.boards.rows import BoardRow, BoardRows, read_details, read_rows, which_submissions
from server.boards.schemas import BoardQuery
from server.boards.what_if import Lens
from server.verifications.first_place import Board, FirstPlace

# Metrics with figures that only the details of a row have.
OF_DETAILS = ("cost", "energy")
# A row takes 4 KB.
MOST_ROWS = 50_000
ENTRY_FIELDS = tuple(BoardEntry.model_fields)
PLACE_FIELDS = ("rank", "tied", "unranked_reason")
# Sections of the rows with a figure and without a number.
LISTED_IN: dict[Evidence, Section] = {
    "measured": "elsewhere",
    "published": "unchecked",
    "claimed": "claimed",
}
MOST_PICTURED = 500
PICTURED = (
    *("submission_id", "rank", "evidence", "measured_seconds", "tta_seconds"),
    *("system", "submitter", "display_name"),
)
DEFAULTS = {
    name: item.default for name, item in BoardEntry.model_fields.items() if not item.is_required()
}
# The division, the round, the metric, the class, and whether withdrawn submissions are shown.
BoardKey = tuple[str | None, Round | None, str, str | None, str]
BoardOf = Callable[[BoardQuery], "RankedBoard"]


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A submission, its place in the ranking, and the fields of its entry that depend on it."""

    row: BoardRow
    place: Mapping[str, Any]

    def figure(self, name: str) -> Any:
        """One field of its board entry."""
        if name == "cost_usd":
            return self.row.standing.cost_usd
        for table in (self.row.changed, self.row.shown, self.place):
            if name in table:
                return table[name]
        return DEFAULTS.get(name)

    def entry(self) -> dict[str, Any]:
        """Its board entry, with the fields of BoardEntry in their order."""
        row = self.row
        known = DEFAULTS | dict(row.shown) | dict(row.changed) | dict(self.place)
        known["cost_usd"] = row.standing.cost_usd
        return {name: known[name] for name in ENTRY_FIELDS}


class RankedBoard:
    """A division's submissions in the order of their ranks, those without one last."""

    def __init__(
        self,
        rows: BoardRows,
        order: Order,
        found: Mapping[str, Standing],
        *,
        hardware_class: str | None = None,
        other_classes: frozenset[str] = frozenset(),
        first_place: FirstPlace | None = None,
    ) -> None:
        self.order = order
        self.found = found
        self.hardware_class, self.other_classes = hardware_class, other_classes
        self.first_place = first_place
        self._rows = rows
        self._placed: dict[int, PlacedRow] = {}
        self._lock = threading.Lock()
        self._separated: dict[str, Separated] = {}
        # The values of its columns, once somebody asked for them: see selection.facets_of.
        self.facets: Any = None
        self._rest: Iterator[Separated] = iter(())
        if order.metric in METRICS_OF_RUNS:
            # Nothing in there refers to this object: in a circle it would outlive its use.
            places = order.rows[: order.numbered]
            times = map(partial(_ranked_time, rows.details), places)
            self._rest = separate(times)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def holder(self) -> str | None:
        """The submission that holds first place; None on a board without one."""
        found = self.first_place and self.first_place.holder
        return found.submission_id if found else None

    def numbered(self) -> list[Standing]:
        """The standings of the numbered rows, in order."""
        return [self.found[row.submission_id] for row in self.order.rows[: self.order.numbered]]

    def numbered_entries(self, session: Session) -> Iterator[dict[str, Any]]:
        """Times and systems of the first numbered rows, and whose they are, for a picture."""
        for placed in self.page(session, 0, min(self.order.numbered, MOST_PICTURED)):
            yield {name: placed.figure(name) for name in PICTURED}

    def page(self, session: Session, start: int, stop: int) -> list[PlacedRow]:
        """The rows from one place up to another, counted from 0."""
        stop = min(stop, len(self))
        with self._lock:
            missing = [place for place in range(start, stop) if place not in self._placed]
            if missing:
                self._load(session, missing)
            for place in missing:
                self._placed[place] = self._place(self.order.place(place))
            return [self._placed[place] for place in range(start, stop)]

    def all_rows(self, session: Session) -> list[PlacedRow]:
        """Every row in order."""
        return self.page(session, 0, len(self))

    def _load(self, session: Session, places: Sequence[int]) -> None:
        """Read the details of some places, and of the numbered rows that they are separated from.

        Whether a number is shared is known from the row below.
        """
        above = range(len(self._separated), min(max(places) + 2, self.order.numbered))
        names = [self.order.place(place).submission_id for place in (*above, *places)]
        self._rows.load(session, names)

    def _place(self, ranked: Ranked) -> PlacedRow:
        row = self._rows.details[ranked.submission_id]
        place = {name: getattr(ranked, name) for name in PLACE_FIELDS}
        is_training = self._rows.kind == "train"
        claims_no_time = is_training and not row.shown["runs_started"]
        if ranked.unranked_reason is not None and claims_no_time:
            reason = why_entry_unranked(row.shown["check"], ranked.unranked_reason)
            place["unranked_reason"] = reason
        place["section"] = self._section(ranked, row)
        place["is_holder"] = ranked.submission_id == self.holder
        if self.first_place is not None and ranked.rank is not None and ranked.value is not None:
            place["not_first"] = self.first_place.why_not_first(ranked.submission_id, ranked.value)
            place["head_to_head"] = self.first_place.head_to_head_of(ranked.submission_id)
        return PlacedRow(row, place | self._separation(ranked, row))

    def _section(self, ranked: Ranked, row: BoardRow) -> Section:
        if ranked.rank is not None:
            return "ranked"
        if self.order.position(ranked.submission_id) >= self.order.listed:
            return "unranked"
        is_claim = ranked.unranked_reason == COST_IS_CLAIMED
        return "claimed" if is_claim else LISTED_IN[row.standing.evidence]

    def _separation(self, ranked: Ranked, row: BoardRow) -> dict[str, Any]:
        if self.order.metric not in METRICS_OF_RUNS:
            return {}
        if ranked.rank is None:
            says_more = row.lens_reason is not None and not row.standing.withdrawn
            if says_more and row.standing.eligible and row.standing.status != "rejected":
                return {"unranked_reason": row.lens_reason}
            return {}
        while ranked.submission_id not in self._separated:
            found = next(self._rest)
            self._separated[found.submission_id] = found
        one = self._separated[ranked.submission_id]
        fields = {
            "rank": one.number,
            "not_separated_from": one.not_separated_from,
            "visible_gap_percent": one.visible_gap_percent,
        }
        return fields | ({"tied": True} if one.shares else {})


@dataclass
class _Version:
    """The rows of a board at one version, and the boards ranked from them.

    `changed` has the rows through the latest lens and at the latest prices: a query looks at
    several divisions.
    """

    rows: BoardRows
    boards: dict[BoardKey, RankedBoard]
    classes: frozenset[str | None]
    changed: tuple[object, BoardRows] | None = None

    @property
    def weight(self) -> int:
        """Weight in a cache, in rows."""
        return self.rows.weight


def ranked_board(
    session: Session, benchmark: Benchmark, query: BoardQuery, *, version: int
) -> RankedBoard:
    """The board that a query asks for, as anybody sees it, before it is filtered or sorted."""
    lens, price = lens_of(benchmark, query), price_of(query)
    with seeing_as_anybody(session):
        cached = _cached_rows(session, benchmark, query.kind, version)
        places = first_places(session, benchmark, version)
        if lens is not None or price is not None:
            asked = (lens, price, query.metric in OF_DETAILS)
            changed = cached.changed
            if changed is None or changed[0] != asked:
                rows = _changed_rows(session, cached.rows, query, lens, price, version=version)
                changed = cached.changed = asked, rows
            return _rank(changed[1], query, {} if lens is not None else places)
        named = query.hardware_class if query.hardware_class in cached.classes else None
        key = (query.division, query.round, query.metric, named, query.withdrawn)
        if key not in cached.boards:
            rows = _changed_rows(session, cached.rows, query, None, None)
            cached.boards[key] = _rank(rows, query, places)
        return cached.boards[key]


def board_as_seen(session: Session, benchmark: Benchmark, query: BoardQuery) -> RankedBoard:
    """The same of everything that the session's viewer sees. It is cached nowhere."""
    lens, price = lens_of(benchmark, query), price_of(query)
    details = read_details(session, benchmark, query.kind)
    standings = {name: row.standing for name, row in details.items()}
    rows = BoardRows(benchmark, query.kind, standings, details)
    version = board_version(session, benchmark.benchmark_id)
    places = {} if lens is not None else first_places(session, benchmark, version)
    return _rank(_changed_rows(session, rows, query, lens, price), query, places)


def board_in_division(
    benchmark: Benchmark, query: BoardQuery, board_of: BoardOf
) -> tuple[BoardQuery, RankedBoard]:
    """The board of a query, and the query with its round and division.

    Where it names none, that is the first with a numbered row, else the first with a submission.
    Divisions of trainings are never ranked together; they say nothing of an inference.
    """
    rounds = rounds_of(benchmark)
    rounds = (query.round,) if query.round in rounds else rounds
    is_chosen = query.division is not None or query.kind != "train"
    divisions = (query.division,) if is_chosen else benchmark.divisions
    asked = [
        query.model_copy(update={"round": name, "division": division})
        for name in rounds
        for division in divisions
    ]
    boards = []
    for one in asked:
        boards.append((one, board_of(one)))
        if boards[-1][1].order.numbered:
            return boards[-1]
    return next((found for found in boards if len(found[1])), boards[0])


def query_of(benchmark: Benchmark, submission: Submission) -> BoardQuery:
    """The query of the board that numbers a submission, by the first metric of its kind."""
    is_measured = submission.kind == "train" and submission.evidence == "measured"
    asked = {
        "metric": FIRST_METRIC[submission.kind],
        "division": submission.division,
        "round": round_of(benchmark, submission.evidence),
        "hardware_class": submission.system["hardware_class"] if is_measured else None,
    }
    return BoardQuery.model_validate(asked)


class RowsCache(VersionedCache):
    """The rows of boards, by benchmark and kind."""

    def __init__(self) -> None:
        super().__init__(MOST_ROWS)


def _cached_rows(session: Session, benchmark: Benchmark, kind: Kind, version: int) -> _Version:
    def read(cached: tuple[int, Any] | None) -> _Version:
        if cached is not None:
            earlier, known = cached
            changed = changes_between(session, benchmark.benchmark_id, earlier, version)
            if changed is not None and known.rows.benchmark == benchmark:
                return _version(known.rows.after(session, changed))
        return _version(read_rows(session, benchmark, kind))

    return state_of(session, RowsCache).get((benchmark.benchmark_id, kind), version, read)


def _version(rows: BoardRows) -> _Version:
    classes = frozenset(one.hardware_class for one in rows.standings.values())
    return _Version(rows, {}, classes)


def _changed_rows(
    session: Session,
    rows: BoardRows,
    query: BoardQuery,
    lens: Lens | None,
    price: OtherPrice | None,
    *,
    version: int | None = None,
) -> BoardRows:
    if lens is None and price is None and query.metric not in OF_DETAILS:
        return rows
    details = rows.load_all(session)
    if lens is not None:
        which = which_submissions(rows.benchmark.benchmark_id, rows.kind)
        known = None if version is None else ((rows.benchmark.sha256, rows.kind), version)
        details = lens_rows(session, details, which, lens, rows.benchmark, version=known)
    if price is not None:
        details = priced_rows(details, price, read_book(session))
    standings = {name: row.standing for name, row in details.items()}
    return BoardRows(rows.benchmark, rows.kind, standings, dict(details))


def _rank(rows: BoardRows, query: BoardQuery, places: Mapping[Board, FirstPlace]) -> RankedBoard:
    found = {
        name: one
        for name, one in rows.standings.items()
        if query.division in (None, one.division)
        and (query.round is None or (query.round == "archive") == (one.evidence == "published"))
        and (not one.withdrawn or query.withdrawn == "show")
    }
    hardware_class, first_place = None, None
    classes = {one.hardware_class for one in found.values()} - {None}
    if query.metric == "tta":
        is_known = query.hardware_class in classes
        hardware_class = query.hardware_class if is_known else _main_class(found.values())
        first_place = places.get((query.division or "", hardware_class or ""))
    holder = first_place.holder if first_place is not None else None
    order = order_of(
        found.values(),
        metric=query.metric,
        hardware_class=hardware_class,
        holder=None if holder is None else holder.submission_id,
    )
    return RankedBoard(
        rows,
        order,
        found,
        hardware_class=hardware_class,
        other_classes=frozenset(filter(None, classes - {hardware_class})),
        first_place=first_place,
    )


def _main_class(standings: Iterable[Standing]) -> str | None:
    """The hardware class with the most measured rows; None where nothing is measured."""
    counted = Counter(
        one.hardware_class
        for one in standings
        if one.hardware_class is not None and one.duplicate_of is None and not one.withdrawn
    )
    return min(counted, key=lambda name: (-counted[name], name), default=None)


def _ranked_time(details: Mapping[str, BoardRow], place: Ranked) -> RankedTime:
    row = details[place.submission_id]
    return RankedTime(
        place.submission_id,
        place.rank or 0,
        place.value or 0.0,
        runs=row.runs,
        dropped=row.dropped,
        spread=row.spread,
        convergence_values=row.convergence_values,
    )
