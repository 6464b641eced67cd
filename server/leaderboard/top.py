"""The top of an official board, without reading the rest of it: for a process that has it not."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.ranking import FIGURE_OF_METRIC, POSSIBLE, Metric, Standing, why_unranked
from rules.tie_groups import is_tested
from server.leaderboard.changes import changes_between
from server.leaderboard.groups import METRICS_OF_RUNS
from server.leaderboard.memory import memory_of
from server.leaderboard.rows import BoardRow, BoardRows, read_rows, which_submissions
from server.leaderboard.schemas import BoardQuery
from server.models import Submission
from server.submissions.visibility import ranks

# Some of the best figures belong to submissions that are not ranked: read a few more at once.
SPARE = 50
MORE = 4
# Further down, reading the whole board costs little more, and it is then there for others.
LOWEST = 300
# Rows of a board that are kept, of all its tops that were asked for together.
MOST_KEPT = 1000


@dataclass(frozen=True)
class Top:
    """The submissions of the best figures, enough to place the first ones; `total` counts all."""

    rows: BoardRows
    total: int


def read_top(
    session: Session, benchmark: Benchmark, query: BoardQuery, *, version: int, end: int
) -> Top | None:
    """What places the first `end` of a board by its metric, of a division if one is named.

    None where the whole board has to be read: so many are not ranked, or ties and runs are such
    that the places depend on what lies below.
    """
    if end > LOWEST or query.metric == "cost":  # What a training costs rests on the price book.
        return None
    which = [*which_submissions(benchmark.benchmark_id, query.kind), ranks()]
    if query.division is not None:
        which.append(Submission.division == query.division)
    ids = _best(session, query, which, end)
    if ids is None:
        return None
    rows = _rows_of(session, benchmark, query, ids, version)
    if query.metric in METRICS_OF_RUNS and not _is_any_tested(rows):
        return None
    total = session.scalar(select(func.count()).select_from(Submission).where(*which))
    return Top(rows, total or 0)


def _rows_of(
    session: Session, benchmark: Benchmark, query: BoardQuery, ids: Sequence[str], version: int
) -> BoardRows:
    """The rows of these submissions; read are those that came or changed since the last time."""
    tops, key = memory_of(session).tops, (benchmark.benchmark_id, query.kind)
    known = _unchanged(session, tops.latest(key), benchmark.benchmark_id, version)
    rows = BoardRows({name: known[name] for name in ids if name in known})
    missing = {name for name in ids if name not in known}
    if missing:
        rows = read_rows(session, benchmark, query.kind, since=(rows, missing))
    others = known if len(known) + len(missing) <= MOST_KEPT else {}
    tops.keep(key, version, BoardRows({**others, **rows.rows}))
    return rows


def _unchanged(
    session: Session, kept: tuple[int, BoardRows] | None, benchmark_id: str, version: int
) -> dict[str, BoardRow]:
    """Those of the kept rows that no version since has changed; none where that is not known."""
    if kept is None:
        return {}
    earlier, found = kept
    if earlier == version:
        return dict(found.rows)
    changed = changes_between(session, benchmark_id, earlier, version)
    if changed is None:
        return {}
    return {name: row for name, row in found.rows.items() if name not in changed}


def _best(session: Session, query: BoardQuery, which: Sequence[Any], end: int) -> list[str] | None:
    """Ids of the first `end` places and of who is tied with the last; None if there are not so many
    or some more would have to be looked at than there are at the top.
    """
    name = FIGURE_OF_METRIC[query.metric]
    figure, possible = getattr(Submission, name), POSSIBLE[name]
    columns = (Submission.id, Submission.status, Submission.eligible, figure.label("figure"))
    statement = select(*columns).where(*which, figure.between(*possible)).order_by(figure)
    most = end + SPARE
    while most <= MORE * (LOWEST + SPARE):
        found = session.execute(statement.limit(most)).all()
        ranked = [row for row in found if _is_ranked(row.status, row.eligible, query.metric)]
        # Who is tied with the last one is known once somebody stands below.
        if len(ranked) > end and ranked[end - 1].figure < found[-1].figure:
            return [row.id for row in ranked if row.figure <= ranked[end - 1].figure]
        if len(found) < most:
            return None
        most *= MORE
    return None


@lru_cache(maxsize=64)
def _is_ranked(status: Any, eligible: bool, metric: Metric) -> bool:
    """Whether whatever has a possible figure of the metric ranks, by the rule that ranks it."""
    names = ("tta_seconds", "cost_usd", "latency_ms", "cost_usd_per_10000")
    figures: dict[str, Any] = dict.fromkeys(names)
    figures[FIGURE_OF_METRIC[metric]] = POSSIBLE[FIGURE_OF_METRIC[metric]][1]
    standing = Standing("", status, "", eligible=eligible, **figures)
    return why_unranked(standing, metric=metric) is None


def _is_any_tested(rows: BoardRows) -> bool:
    """Whether tie groups are tested on this board; without, the rest of it may still have them."""
    return any(is_tested(row.log_times) for row in rows.rows.values())
