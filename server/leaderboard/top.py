"""The top of an official board, without reading the rest of it: for a process that has it not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.ranking import FIGURE_OF_METRIC, Standing, why_unranked
from rules.tie_groups import is_tested
from server.leaderboard.groups import METRICS_OF_RUNS
from server.leaderboard.rows import BoardRows, read_rows, which_submissions
from server.leaderboard.schemas import BoardQuery
from server.models import Submission
from server.submissions.visibility import ranks

# Some of the best figures belong to submissions that are not ranked: read a few more at once.
SPARE = 50
MORE = 4
# Further down, reading the whole board costs little more, and it is then there for others.
LOWEST = 300


@dataclass(frozen=True)
class Top:
    """The submissions of the best figures, enough to place the first ones; `total` counts all."""

    rows: BoardRows
    total: int


def read_top(session: Session, benchmark: Benchmark, query: BoardQuery, *, end: int) -> Top | None:
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
    nothing = BoardRows({})
    rows = read_rows(session, benchmark, query.kind, since=(nothing, set(ids)))
    if query.metric in METRICS_OF_RUNS and not _is_any_tested(rows):
        return None
    total = session.scalar(select(func.count()).select_from(Submission).where(*which))
    return Top(rows, total or 0)


def _best(session: Session, query: BoardQuery, which: Sequence[Any], end: int) -> list[str] | None:
    """Ids of the first `end` places and of who is tied with the last; None if there are not so many
    or some more would have to be looked at than there are at the top.
    """
    figure = getattr(Submission, FIGURE_OF_METRIC[query.metric])
    columns = (Submission.id, Submission.status, Submission.eligible, figure.label("figure"))
    statement = select(*columns).where(*which, figure.is_not(None)).order_by(figure)
    most = end + SPARE
    while most <= MORE * (LOWEST + SPARE):
        found = session.execute(statement.limit(most)).all()
        ranked = [row for row in found if _is_ranked(row, query)]
        # Who is tied with the last one is known once somebody stands below.
        if len(ranked) > end and ranked[end - 1].figure < found[-1].figure:
            return [row.id for row in ranked if row.figure <= ranked[end - 1].figure]
        if len(found) < most:
            return None
        most *= MORE
    return None


def _is_ranked(row: Row[Any], query: BoardQuery) -> bool:
    """By the rule that ranks it: of the figures only the metric's is looked at."""
    names = ("tta_seconds", "cost_usd", "latency_ms", "cost_usd_per_10000")
    figures: dict[str, Any] = dict.fromkeys(names)
    figures[FIGURE_OF_METRIC[query.metric]] = row.figure
    standing = Standing(row.id, row.status, "", eligible=row.eligible, **figures)
    return why_unranked(standing, metric=query.metric) is None


def _is_any_tested(rows: BoardRows) -> bool:
    """Whether tie groups are tested on this board; without, the rest of it may still have them."""
    return any(is_tested(row.log_times) for row in rows.rows.values())
