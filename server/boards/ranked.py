"""Everything of a division, ranked and separated: kept in memory until the board changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking.lens import Lens
from finishline.rules.ranking.ranking import Metric, Order, Ranked, Standing, order_of
from finishline.rules.submissions.claim import Kind
from server.board_versions import changes_between
from server.boards.also_by import one_row_each
from server.boards.facets import Facets, facets_of
from server.boards.lens import lens_of, lens_rows
from server.boards.memory import BoardMemory, memory_of
from server.boards.price import OtherPrice, price_of, priced_rows
from server.boards.rows import BoardRow, BoardRows, read_rows, which_submissions
from server.boards.schemas import BoardEntry, BoardQuery
from server.boards.separated import BoardSeparation
from server.prices.costs import read_book
from server.viewer import seeing_as_anybody

# Sorting thousands anew takes less time than putting so many in one by one.
MOST_CHANGES = 200
ENTRY_FIELDS = tuple(BoardEntry.model_fields)
PLACE_FIELDS = ("rank", "tied", "unranked_reason", "provisional_rank", "listed_rank")
DEFAULTS = {
    name: item.default for name, item in BoardEntry.model_fields.items() if not item.is_required()
}


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """A submission and what the ranking says of it."""

    row: BoardRow
    ranked: Ranked
    separation: BoardSeparation

    @property
    def place(self) -> dict[str, Any]:
        """What the ranking says of it, as fields of its board entry."""
        own = {name: getattr(self.ranked, name) for name in PLACE_FIELDS}
        return own | self.separation.of(self.ranked)

    def figure(self, name: str) -> Any:
        """One field of its board entry."""
        if name == "cost_usd":
            return self.row.cost_usd
        for table in (self.row.changed, self.row.shown):
            if name in table:
                return table[name]
        return self.place.get(name, DEFAULTS.get(name))

    def entry(self) -> dict[str, Any]:
        """Its board entry, with the fields of BoardEntry in their order."""
        own = {"cost_usd": self.row.cost_usd}
        known = DEFAULTS | dict(self.row.shown) | dict(self.row.changed) | own | self.place
        return {name: known[name] for name in ENTRY_FIELDS}


class PlacedRows(Sequence[PlacedRow]):
    """The rows of a board in its order; each is placed when somebody asks for it."""

    def __init__(self, order: Order, rows: Mapping[str, BoardRow]) -> None:
        self._order = order
        self._rows = rows
        self._separation = BoardSeparation(order, rows)
        self._placed: list[PlacedRow | None] = [None] * len(order)

    def __len__(self) -> int:
        return len(self._placed)

    @overload
    def __getitem__(self, index: int) -> PlacedRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[PlacedRow]: ...

    def __getitem__(self, index: int | slice) -> PlacedRow | list[PlacedRow]:
        if isinstance(index, slice):
            return [self._place(position) for position in range(*index.indices(len(self)))]
        return self._place(range(len(self))[index])

    def _place(self, position: int) -> PlacedRow:
        placed = self._placed[position]
        if placed is None:
            place = self._order.place(position)
            placed = PlacedRow(self._rows[place.submission_id], place, self._separation)
            self._placed[position] = placed
        return placed


@dataclass(frozen=True)
class RankedBoard:
    """A division's submissions in the order of their ranks, those without one last.

    `order` and `found` are what the next version's board is made from.
    """

    rows: Sequence[PlacedRow]
    order: Order
    found: Mapping[str, BoardRow]

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

    def make() -> RankedBoard:
        rows = _rows(session, memory, benchmark, query, lens, version)
        earlier = kept.latest(key)
        found = _repriced(session, rows, price)
        return _rank(found, query, benchmark, None if earlier is None else earlier[1])

    # What is kept is shown to everybody, whoever asks for it first.
    with seeing_as_anybody(session):
        return kept.get(key, version, make)


def board_as_seen(session: Session, benchmark: Benchmark, query: BoardQuery) -> RankedBoard:
    """The same of all that the session's viewer sees: made for them alone and kept nowhere.

    Raises RuleError for a target that the benchmark cannot have.
    """
    rows = read_rows(session, benchmark, query.kind)
    rows = _through_lens(session, rows, benchmark, query, lens_of(benchmark, query))
    return _rank(_repriced(session, rows, price_of(query)), query, benchmark, None)


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
    return _through_lens(session, rows, benchmark, query, lens)


def _through_lens(
    session: Session, rows: BoardRows, benchmark: Benchmark, query: BoardQuery, lens: Lens | None
) -> BoardRows:
    if lens is None:
        return rows
    which = which_submissions(benchmark.benchmark_id, query.kind)
    return lens_rows(session, rows, which, lens, benchmark)


def _since(
    session: Session, memory: BoardMemory, key: tuple[str, Kind], version: int
) -> tuple[BoardRows, set[str]] | None:
    """What an earlier version had and which submissions changed since, if both are known."""
    kept = memory.submissions.latest(key)
    if kept is None:
        return None
    earlier, rows = kept
    changed = changes_between(session, key[0], earlier, version)
    return None if changed is None else (rows, changed)


def _repriced(session: Session, rows: BoardRows, price: OtherPrice | None) -> BoardRows:
    return rows if price is None else priced_rows(rows, price, read_book(session))


def _rank(
    found: BoardRows, query: BoardQuery, benchmark: Benchmark, earlier: RankedBoard | None
) -> RankedBoard:
    wanted = (row for row in found.rows.values() if _is_wanted(row, query))
    rows = one_row_each({row.submission_id: row for row in wanted})
    order = _order(rows, query.metric, benchmark.ranking.numbers, earlier)
    return RankedBoard(PlacedRows(order, rows), order, rows)


def _order(
    rows: Mapping[str, BoardRow],
    metric: Metric,
    numbers: tuple[str, ...] | None,
    earlier: RankedBoard | None,
) -> Order:
    """The order of a board, from that of an earlier version where few rows are other ones."""
    if earlier is not None:
        gone, come = _others(earlier.found, rows), _others(rows, earlier.found)
        is_alike = earlier.order.numbers == numbers
        if is_alike and len(gone) + len(come) <= MOST_CHANGES:
            return earlier.order.changed(gone=gone, come=come)
    standings = (row.standing for row in rows.values())
    return order_of(standings, metric=metric, numbers=numbers)


def _others(rows: Mapping[str, BoardRow], known: Mapping[str, BoardRow]) -> list[Standing]:
    """Those that are not the same rows, unchanged, among the known ones."""
    return [row.standing for name, row in rows.items() if known.get(name) is not row]


def _is_wanted(row: BoardRow, query: BoardQuery) -> bool:
    if row.withdrawn and query.withdrawn != "show":
        return False
    return query.division is None or row.division == query.division
