"""The division that a board begins with: divisions are numbered apart."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from server.leaderboard.schemas import BoardQuery
from server.models import Submission


def in_division(session: Session, benchmark: Benchmark, query: BoardQuery) -> BoardQuery:
    """The same query of the division that a board begins with, where it names none.

    Divisions of trainings are never ranked together; they say nothing of an inference.
    """
    if query.division is not None or query.kind != "train":
        return query
    return query.model_copy(update={"division": _first(session, benchmark)})


def _first(session: Session, benchmark: Benchmark) -> str:
    """The benchmark's first division that has a training; where none has, its first one."""
    trainings = (Submission.benchmark_id == benchmark.benchmark_id, Submission.kind == "train")
    for division in benchmark.divisions:
        has_one = select(Submission.id).where(*trainings, Submission.division == division).limit(1)
        if session.scalar(has_one) is not None:
            return division
    return benchmark.divisions[0]
