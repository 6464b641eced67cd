"""Read a board's rows, rank them, and cut the page of a query.

The rows of a board are cached for its latest version. After a write only changed submissions are
read again, and the board is ordered anew.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, cached_property, partial
from itertools import chain, islice
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.boards import BoardView, Section
from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.ranking import Evidence
from finishline.rules.submissions.claim import Kind
from server.base.board_versions import (
    board_version,
    board_versions,
    cached_for_board,
    cached_since,
    changes_between,
)
from server.base.models import Submission
from server.benchmarks.definitions import definition, round_of, rounds_of, rules_that_differ
from server.benchmarks.phases import current_dates, moment_words
from server.benchmarks.prices import read_book
from server.boards.order import (
    COST_IS_CLAIMED,
    FIRST_METRIC,
    Order,
    Place,
    Row,
    order_of,
    separate,
    why_entry_unranked,
)
from server.boards.query import BoardQuery, Facets, find_facets, select_rows, what_if_of
from server.boards.rows import BoardRow, BoardRows, PlacedRow, read_rows
from server.boards.what_if import price_view, priced, rows_at, what_if_view
from server.verifications.head_to_heads import FirstPlace, read_first_places

log = logging.getLogger(__name__)
Board = dict[str, Any]
FirstPlaces = Mapping[tuple[str, str], FirstPlace]  # By division and hardware class.
FIRST_METRICS = ("tta", "quality")  # Each board of trainings is ranked by one of them.
# Sections of unnumbered rows with a figure.
LISTED_IN: dict[Evidence, Section] = {
    "measured": "elsewhere",
    "published": "unchecked",
    "claimed": "claimed",
}
NOTHING_HIDDEN = "Nothing is under embargo: this is the public board."


class RankedBoard:
    """A division's submissions in the order of their ranks, unranked ones last."""

    def __init__(self, rows: BoardRows, query: BoardQuery, places: FirstPlaces) -> None:
        self.rows = {name: row for name, row in rows.found.items() if _is_on_board(row, query)}
        self.hardware_class: str | None = None
        self.first_place: FirstPlace | None = None
        classes = {row.hardware_class for row in self.rows.values()} - {None}
        if query.metric in FIRST_METRICS:
            is_known = query.hardware_class in classes
            self.hardware_class = query.hardware_class if is_known else _main_class(self.rows)
            self.first_place = places.get((query.division or "", self.hardware_class or ""))
        self.other_classes = sorted(filter(None, classes - {self.hardware_class}))
        holder = self.first_place.holder if self.first_place is not None else None
        self.order = order_of(
            self.rows.values(),
            metric=query.metric,
            hardware_class=self.hardware_class,
            holder=None if holder is None else holder.submission_id,
            score=rows.benchmark.score,
        )
        self._lock = threading.Lock()
        self._placed: list[PlacedRow] = []
        # Without a reference to the board: a circle would keep the board in memory.
        self._rest = _placed_rows(rows, self.order, self.first_place)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def weight(self) -> int:
        """Weight in a cache, in KiB."""
        return len(self) // 2

    @property
    def numbered(self) -> list[BoardRow]:
        """The numbered rows, in order."""
        places = self.order.places[: self.order.numbered]
        return [self.rows[place.submission_id] for place in places]

    @cached_property
    def facets(self) -> Facets:
        """Values for filters on the whole board."""
        return find_facets(self.page())

    def page(self, start: int = 0, stop: int | None = None) -> list[PlacedRow]:
        """Return the rows from one place up to another, counted from 0. By default every row."""
        stop = len(self) if stop is None else min(stop, len(self))
        with self._lock:
            self._placed += islice(self._rest, max(0, stop - len(self._placed)))
            return self._placed[start:stop]

    def find(self, submission_id: str) -> PlacedRow | None:
        """Find the row of a submission on the board."""
        if submission_id not in self.rows:
            return None
        at = self.order.position(submission_id)
        return self.page(at, at + 1)[0]


def _placed_rows(
    rows: BoardRows, order: Order, first_place: FirstPlace | None
) -> Iterator[PlacedRow]:
    """Yield the rows of a board in order, each placed when it is asked for."""
    numbered: Iterable[Place] = order.places[: order.numbered]
    if order.metric in (*FIRST_METRICS, "cost"):
        numbered = separate((one, rows.found[one.submission_id].behind) for one in numbered)
    for position, place in enumerate(chain(numbered, order.places[order.numbered :])):
        row = rows.found[place.submission_id]
        fields = {
            "rank": place.rank,
            "tied": place.tied,
            "unranked_reason": _why_unranked(place, row, rows.kind),
            "not_separated_from": place.not_separated_from,
            "visible_gap_percent": place.visible_gap_percent,
            "section": _section(place, row, is_listed=position < order.listed),
        }
        if first_place is not None and place.rank is not None and place.value is not None:
            fields["not_first"] = first_place.why_not_first(place.submission_id, place.value)
            fields["head_to_head"] = first_place.head_to_head_of(place.submission_id)
            holder = first_place.holder
            fields["is_holder"] = holder is not None and holder.submission_id == place.submission_id
        yield PlacedRow(row, fields)


def _why_unranked(place: Place, row: BoardRow, kind: Kind) -> str | None:
    why = place.unranked_reason
    if why is None:
        return None
    is_about_time = row.eligible and row.status != "rejected" and not row.withdrawn
    if row.no_time_because is not None and is_about_time:
        return row.no_time_because
    if kind == "train" and not row["runs_started"]:
        return why_entry_unranked(row["check"], why)
    return why


def _section(place: Place, row: BoardRow, *, is_listed: bool) -> Section:
    if place.rank is not None:
        return "ranked"
    if not is_listed:
        return "unranked"
    is_claim = place.unranked_reason == COST_IS_CLAIMED
    return "claimed" if is_claim else LISTED_IN[row.evidence]


def _is_on_board(row: Row, query: BoardQuery) -> bool:
    in_round = query.round is None or (query.round == "archive") == (row.evidence == "published")
    is_shown = not row.withdrawn or query.withdrawn == "show"
    return query.division in (None, row.division) and in_round and is_shown


def _main_class(rows: Mapping[str, BoardRow]) -> str | None:
    counted = Counter(
        row.hardware_class
        for row in rows.values()
        if row.hardware_class is not None and row.duplicate_of is None and not row.withdrawn
    )
    return min(counted, key=lambda name: (-counted[name], name), default=None)


def first_places(session: Session, benchmark: Benchmark, version: int | None = None) -> FirstPlaces:
    """Read the first place of each division and hardware class, cached by board version."""
    make = partial(read_first_places, session, benchmark)
    return cached_for_board(session, benchmark.benchmark_id, "first places", make, version=version)


def ranked_board(
    session: Session, benchmark: Benchmark, query: BoardQuery, *, version: int | None = None
) -> RankedBoard:
    """Return the board of a query as anybody sees it, before filters and sorting."""
    version = board_version(session, benchmark.benchmark_id) if version is None else version
    query = in_own_metric(benchmark, query)
    return _boards_of(session, benchmark, query, version)(query)


def in_own_metric(benchmark: Benchmark, query: BoardQuery) -> BoardQuery:
    """Replace a query's first metric by the benchmark's own: quality or time."""
    if query.metric not in FIRST_METRICS:
        return query
    metric = "quality" if benchmark.score.by == "quality" else "tta"
    return query.model_copy(update={"metric": metric})


def board_in_division(
    session: Session, benchmark: Benchmark, query: BoardQuery, *, version: int | None
) -> tuple[BoardQuery, RankedBoard]:
    """Return the board of a query, and the query with its round and division.

    By default it is the first with a numbered row, else the first with a submission. Only trainings
    have divisions, each with a separate ranking. Without a `version` it is uncached, and shows all
    rows of the session's viewer.
    """
    query = in_own_metric(benchmark, query)
    board_of = _boards_of(session, benchmark, query, version)
    rounds = rounds_of(benchmark) if query.round is None else (query.round,)
    is_chosen = query.division is not None or query.kind != "train"
    boards = []
    for name in rounds:
        for division in (query.division,) if is_chosen else benchmark.divisions:
            one = query.model_copy(update={"round": name, "division": division})
            boards.append((one, board_of(one)))
            if boards[-1][1].order.numbered:
                return boards[-1]
    return next((found for found in boards if len(found[1])), boards[0])


def query_of(benchmark: Benchmark, submission: Submission) -> BoardQuery:
    """Return the query of a submission's board, by its kind's first metric."""
    is_measured = submission.kind == "train" and submission.evidence == "measured"
    asked = {
        "metric": FIRST_METRIC[submission.kind],
        "division": submission.division,
        "round": round_of(benchmark, submission.evidence),
        "hardware_class": submission.system["hardware_class"] if is_measured else None,
    }
    return BoardQuery.model_validate(asked)


def _boards_of(
    session: Session, benchmark: Benchmark, query: BoardQuery, version: int | None
) -> Callable[[BoardQuery], RankedBoard]:
    """Return a function that ranks a board. Official boards are cached by version."""
    what_if, price = what_if_of(benchmark, query), query.other_price
    rows_of = cache(partial(_rows_for, session, benchmark, query, version))
    at = board_version(session, benchmark.benchmark_id) if version is None else version

    def rank(one: BoardQuery) -> RankedBoard:
        places = {} if what_if is not None else first_places(session, benchmark, at)
        return RankedBoard(rows_of(), one, places)

    def board_of(one: BoardQuery) -> RankedBoard:
        if version is None or what_if is not None or price is not None:
            return rank(one)
        named = one.hardware_class
        if named is not None and named not in rows_of().classes:
            named = None
        name = f"board {one.division} {one.round} {one.metric} {named} {one.withdrawn}"
        return cached_for_board(
            session, benchmark.benchmark_id, name, partial(rank, one), version=version
        )

    return board_of


def _rows_for(
    session: Session, benchmark: Benchmark, query: BoardQuery, version: int | None
) -> BoardRows:
    what_if, price = what_if_of(benchmark, query), query.other_price
    rows = _read(session, benchmark, query.kind, version)
    if what_if is not None:
        rows = rows_at(session, rows, what_if, version=version)
    if price is not None:
        book = read_book(session)
        found = {name: priced(row, price, book) for name, row in rows.found.items()}
        rows = BoardRows(benchmark, query.kind, found)
    return rows


def _read(session: Session, benchmark: Benchmark, kind: Kind, version: int | None) -> BoardRows:
    if version is None:
        return read_rows(session, benchmark, kind)

    def read(earlier: tuple[int, BoardRows] | None) -> BoardRows:
        if earlier is not None and earlier[1].benchmark == benchmark:
            changed = changes_between(session, benchmark.benchmark_id, earlier[0], version)
            if changed is not None:
                return earlier[1].after(session, changed)
        return read_rows(session, benchmark, kind)

    return cached_since(session, benchmark.benchmark_id, f"rows {kind}", read, version=version)


def read_board(session: Session, benchmark: Benchmark, query: BoardQuery) -> Board:
    """Read the asked part of a board, with BoardView's fields. Ranks count rows before filters."""
    version = board_version(session, benchmark.benchmark_id)
    query, ranked = board_in_division(session, benchmark, query, version=version)
    return cut_board(session, ranked, benchmark, query, version=version)


def cut_board(
    session: Session,
    ranked: RankedBoard,
    benchmark: Benchmark,
    query: BoardQuery,
    *,
    version: int,
) -> Board:
    """Cut a query's page of a ranked board, with the fields of BoardView."""
    start = query.start(version)
    stop, total = start + query.limit, len(ranked)
    if query.is_selective:
        chosen = select_rows(ranked.page(), query)
        page, total = chosen[start:stop], len(chosen)
    else:
        page = ranked.page(start, stop)
    end = start + len(page)
    what_if, price = what_if_of(benchmark, query), query.other_price
    return {
        "benchmark": benchmark.benchmark_id,
        "kind": query.kind,
        "division": query.division,
        "round": query.round,
        "hardware_class": ranked.hardware_class,
        "metric": query.metric,
        "version": version,
        "total": total,
        "next_cursor": f"{version}.{end}" if page and end < total else None,
        "entries": [placed.entry() for placed in page],
        "first": start + 1 if page else None,
        "what_if": None if what_if is None else what_if_view(what_if, benchmark).model_dump(),
        "price": None if price is None else price_view(price).model_dump(),
        "other_rules": _other_rules(session, benchmark, page),
    }


def _other_rules(
    session: Session, benchmark: Benchmark, page: Iterable[PlacedRow]
) -> dict[str, str]:
    """Say by SHA-256 how earlier definitions differ from today's, if figures are incomparable."""
    words = {}
    for sha256 in sorted({placed["benchmark_sha256"] for placed in page} - {benchmark.sha256}):
        try:
            earlier = definition(session, sha256)
        except RuleError:  # Written for an earlier release.
            words[sha256] = f"definition {sha256[:12]}, which cannot be compared"
            continue
        if differ := rules_that_differ(earlier, benchmark):
            words[sha256] = f"version {earlier.version}, other {', '.join(differ)}"
    return words


class PreviewPart(Schema):
    """Entries under embargo: their ids on this page, and their number before filters."""

    embargo_until: datetime | None
    hidden: list[str]
    hidden_total: int
    note: str


class PreviewView(BoardView):
    """A page of a board as if its embargo were over."""

    preview: PreviewPart


def preview_board(
    session: Session, benchmark: Benchmark, query: BoardQuery
) -> tuple[Board, RankedBoard]:
    """Read the page of a query with the fields of PreviewView, and its board.

    The session shows submissions under embargo, so callers check first who the reader is.
    """
    benchmark_id = benchmark.benchmark_id
    version = board_version(session, benchmark_id)
    query, ranked = board_in_division(session, benchmark, query, version=None)
    board = cut_board(session, ranked, benchmark, query, version=version)
    embargoed = (Submission.benchmark_id == benchmark_id, Submission.embargoed.is_(True))
    hidden = set(session.scalars(select(Submission.id).where(*embargoed)))
    total = len(hidden & ranked.rows.keys())
    until = current_dates(session, benchmark_id).embargo_until
    if total:
        # The log line also carries the id of the token's user.
        log.info("the board of %s was looked at under embargo", benchmark_id)
    part = PreviewPart(
        embargo_until=until,
        hidden=[
            each["submission_id"] for each in board["entries"] if each["submission_id"] in hidden
        ],
        hidden_total=total,
        note=_preview_note(total, of=len(ranked), until=until),
    )
    return board | {"preview": part.model_dump(mode="json")}, ranked


def _preview_note(hidden_total: int, *, of: int, until: datetime | None) -> str:
    if not hidden_total:
        return NOTHING_HIDDEN
    date = f", until {moment_words(until)}," if until is not None else ""
    are = "is" if hidden_total == 1 else "are"
    return (
        f"Only organisers see this: the board as if its embargo{date} had ended. "
        f"{hidden_total} of its {of} submission{'' if of == 1 else 's'} {are} hidden from the "
        "public."
    )


# Of each division, because a board may have 20,000 rows.
MOST_RESULTS = 1000
RESULT_FIELDS = (
    *("submission_id", "submitter", "display_name", "model", "framework", "division", "system"),
    *("status", "rank", "evidence", "check", "trained_with"),
    *("tta_seconds", "measured_seconds", "submitted_on", "submitted_at"),
)


def board_results(session: Session, benchmarks: Iterable[Benchmark]) -> list[dict[str, Any]]:
    """List the ranked trainings of benchmarks, cached by board version. Treat them as constant."""
    versions = board_versions(session)
    found: list[dict[str, Any]] = []
    for benchmark in benchmarks:
        name = benchmark.benchmark_id
        if name in versions:
            make = partial(_find_results, session, benchmark, versions[name])
            found += cached_for_board(session, name, "results", make, version=versions[name])
    return found


def _find_results(session: Session, benchmark: Benchmark, version: int) -> list[dict[str, Any]]:
    """Take a measured result only from the board of its hardware class."""
    found = []
    for division in benchmark.divisions:
        for name in rounds_of(benchmark):
            query = BoardQuery.model_validate({"division": division, "round": name})
            board = ranked_board(session, benchmark, query, version=version)
            boards = [(board, {None, board.hardware_class})]
            for other in board.other_classes:
                of_class = query.model_copy(update={"hardware_class": other})
                ranked = ranked_board(session, benchmark, of_class, version=version)
                boards.append((ranked, {other}))
            for board, classes in boards:
                for placed in board.page(0, min(MOST_RESULTS, board.order.listed)):
                    if placed.row.hardware_class in classes:
                        found.append(_result(placed, benchmark))
    return found


def _result(placed: PlacedRow, benchmark: Benchmark) -> dict[str, Any]:
    return {
        **{name: placed[name] for name in RESULT_FIELDS},
        "benchmark": benchmark.benchmark_id,
        "accelerator": placed.row.accelerator,
        "round": round_of(benchmark, placed["evidence"]),
    }
