"""How often the holder of a record had tried: the best of many tries is partly luck."""

from collections.abc import Sequence
from typing import Any, get_args

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from finishline.rules.ranking.evidence import Evidence
from server.models import PublishedResult, Submission

# A statement counts for so many records: no database takes columns without end.
RECORDS_AT_ONCE = 100
COLUMNS = (
    Submission.id,
    Submission.user_id,
    Submission.submitted_at,
    PublishedResult.organisation,
    PublishedResult.published_on,
)


def count_tries(
    session: Session, benchmark_id: str, division: str, submission_ids: Sequence[str]
) -> dict[str, int]:
    """For each submission how many trainings its submitter had handed in up to it, itself included.

    To the same benchmark and division, whatever became of them: withdrawn and rejected ones are
    tries. An archive's submitter is the organisation it names. Counted are those of the submitters
    alone, by an index: no row is looked at, and most of a board is skipped.
    """
    counts: dict[str, int] = {}
    for first in range(0, len(submission_ids), RECORDS_AT_ONCE):
        some = submission_ids[first : first + RECORDS_AT_ONCE]
        tried = select(*COLUMNS).outerjoin_from(Submission, PublishedResult)
        rows = session.execute(tried.where(Submission.id.in_(some))).all()
        counted = session.execute(
            select(*(func.count().filter(_up_to(row)) for row in rows))
            .outerjoin_from(Submission, PublishedResult)
            .where(
                Submission.benchmark_id == benchmark_id,
                Submission.kind == "train",
                # All there are: the index goes by it before it goes by the submitter.
                Submission.evidence.in_(get_args(Evidence)),
                Submission.division == division,
                Submission.user_id.in_({row.user_id for row in rows}),
            )
        ).one()
        counts |= {row.id: count for row, count in zip(rows, counted, strict=True)}
    return counts


def _up_to(row: Any) -> ColumnElement[bool]:
    """The tries of one submitter that were no later than one of them."""
    if row.published_on is None:
        not_later = Submission.submitted_at <= row.submitted_at
    else:
        not_later = PublishedResult.published_on <= row.published_on
    return and_(
        Submission.user_id == row.user_id,
        PublishedResult.organisation.is_(None)
        if row.organisation is None
        else PublishedResult.organisation == row.organisation,
        not_later,
    )
