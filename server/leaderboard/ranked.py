"""Everything of a division, ranked and grouped: kept in memory until the board changes."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.claim import Kind
from rules.lens import Lens
from rules.ranking import Ranked, rank
from server.leaderboard.changes import board_changes_of
from server.leaderboard.facets import Facets, facets_of
from server.leaderboard.groups import BoardGroups
from server.leaderboard.lens import lens_of, lens_rows
from server.leaderboard.memory import BoardMemory, memory_of
from server.leaderboard.price import OtherPrice, price_of, priced_rows
from server.leaderboard.rows import BoardRow, BoardRows, read_rows, which_submissions
from server.leaderboard.schemas import BoardEntry, BoardQuery
from server.prices.costs import read_book
from server.submissions.visibility import seeing_as_anybody

ENTRY_FIELDS = tuple(BoardEntry.model_fields)
PLACE_FIELDS = ("rank", "tied", "unranked_reason")
DEFAULTS = {
    name: item.default for name, item in BoardEntry.model_fields.items() if not item.is_required()
}


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A submission and what the ranking says of it."""

    row: BoardRow
    ranked: Ranked
    groups: BoardGroups

    @property
    def place(self) -> dict[str, Any]:
        """What the ranking says of it, as fields of its board entry."""
        own = {name: getattr(self.ranked, name) for name in PLACE_FIELDS}
        return own | self.groups.of(self.ranked)

    def figure(self, name: str) -> Any:
        """One field of its board entry."""
        if name == "cost_usd":
            return self.row.cost_usd
        if name == "rank":
            return self.ranked.rank
        for table in (self.row.changed, self.row.shown):
            if name in table:
                return table[name]
        return self.place.get(name, DEFAULTS.get(name))

    def entry(self) -> dict[str, Any]:
        """Its board entry, with the fields of BoardEntry in their order."""
        own = {"cost_usd": self.row.cost_usd}
        known = DEFAULTS | dict(self.row.shown) | dict(self.row.changed) | own | self.place
        return {name: known[name] for name in ENTRY_FIELDS}


@dataclass(frozen=True)
class RankedBoard:
    """A division's submissions in the order of their ranks, those without one last."""

    rows: tuple[PlacedRow, ...]

    @cached_property
    def facets(self) -> Facets:
        """What is on it; derived when a page asks, because JSON shows none of it."""
        return facets_of(self.rows)


def ranked_board(
    session: Session, benchmark: Benchmark, query: BoardQuery, *, version: int
) -> RankedBoard:
    """The board that a query asks for, before anything of it is filtered or sorted.

    Raises RuleError for a target that the benchmark cannot have.
    """
    memory = memory_of(session)
    lens, price = lens_of(benchmark, query), price_of(query)
    key = (benchmark.benchmark_id, query.division, query.metric, query.withdrawn, lens, price)
    kept = memory.boards if lens is None and price is None else memory.own_boards
    # What is kept is shown to everybody, whoever asks for it first.
    with seeing_as_anybody(session):
        return kept.get(
            key,
            version,
            lambda: _rank(
                _repriced(session, _rows(session, memory, benchmark, query, lens, version), price),
                query,
            ),
        )


def _rows(
    session: Session,
    memory: BoardMemory,
    benchmark: Benchmark,
    query: BoardQuery,
    lens: Lens | None,
    version: int,
) -> BoardRows:
    key = (benchmark.benchmark_id, query.kind)

    def read() -> BoardRows:
        since = _since(session, memory, key, version)
        return read_rows(session, benchmark, query.kind, since=since)

    rows = memory.submissions.get(key, version, read)
    if lens is None:
        return rows
    return lens_rows(session, rows, which_submissions(*key), lens, benchmark)


def _since(
    session: Session, memory: BoardMemory, key: tuple[str, Kind], version: int
) -> tuple[BoardRows, set[str]] | None:
    """What an earlier version had and which submissions changed since, if both are known here."""
    kept = memory.submissions.latest(key)
    if kept is None:
        return None
    earlier, rows = kept
    changed = board_changes_of(session).between(key[0], earlier, version)
    return None if changed is None else (rows, changed)


def _repriced(session: Session, rows: BoardRows, price: OtherPrice | None) -> BoardRows:
    return rows if price is None else priced_rows(rows, price, read_book(session))


def _rank(found: BoardRows, query: BoardQuery) -> RankedBoard:
    rows = {row.submission_id: row for row in found.rows.values() if _is_wanted(row, query)}
    places = rank([row.standing for row in rows.values()], metric=query.metric)
    groups = BoardGroups(places, rows, metric=query.metric)
    return RankedBoard(
        tuple(PlacedRow(rows[place.submission_id], place, groups) for place in places)
    )


def _is_wanted(row: BoardRow, query: BoardQuery) -> bool:
    if row.withdrawn and query.withdrawn == "hide":
        return False
    return query.division is None or row.division == query.division
