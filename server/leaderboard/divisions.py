"""The division that a board begins with: divisions are numbered apart."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.claim import Kind
from server.models import Submission


def first_division(session: Session, benchmark: Benchmark, kind: Kind) -> str | None:
    """The first division that has a submission, closed before all; None where there is no choice.

    None too of a benchmark that has one division, or no submission.
    """
    if len(benchmark.divisions) < 2:
        return None
    of_board = (Submission.benchmark_id == benchmark.benchmark_id, Submission.kind == kind)
    for division in sorted(benchmark.divisions, key=lambda name: (name != "closed", name)):
        has_one = select(Submission.id).where(*of_board, Submission.division == division).limit(1)
        if session.scalar(has_one) is not None:
            return division
    return None
