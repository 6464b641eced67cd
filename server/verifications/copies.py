"""Logs of a submission that somebody else has handed in before: the same bytes or training."""

from sqlalchemy import select, union
from sqlalchemy.orm import Session, undefer

from rules.curve import evaluation_of
from rules.fingerprint import fingerprint_of_curve, is_telling
from rules.run import Evaluation
from server.models import RunRow, Submission
from server.submissions.queries import runs_with_curves

MAX_CANDIDATES = 200


def find_elsewhere(session: Session, submission: Submission) -> dict[str, str]:
    """By file, which run of another submitter's earlier submission a run is.

    Of the benchmark's runs only those of the same bytes, or of the same best quality after as many
    epochs, are looked at: editing a seed or the format leaves those as they are.
    """
    found: dict[str, str] = {}
    for run in runs_with_curves(session, submission.id):
        own = _evaluations(run)
        mark = fingerprint_of_curve(own) if is_telling(own) else None
        for other in _candidates(session, submission, run):
            if other.log_sha256 == run.log_sha256 or (
                mark is not None and fingerprint_of_curve(_evaluations(other)) == mark
            ):
                found[run.file] = _named(session, other)
                break
    return found


def _named(session: Session, run: RunRow) -> str:
    """A run as everybody may read of it: a reason stays when an embargo is over, and before."""
    if session.get_one(Submission, run.submission_id).embargoed:
        return "a run of a submission that was under embargo"
    return f"{run.file} of submission {run.submission_id}"


def _candidates(session: Session, submission: Submission, run: RunRow) -> list[RunRow]:
    same_bytes = select(RunRow.id).where(RunRow.log_sha256 == run.log_sha256)
    # A union, as no index serves both; what is None is compared as such.
    alike = select(RunRow.id).where(
        RunRow.best_quality == run.best_quality, RunRow.epochs_to_target == run.epochs_to_target
    )
    query = (
        select(RunRow)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(
            Submission.benchmark_id == submission.benchmark_id,
            Submission.user_id != submission.user_id,
            Submission.submitted_at <= submission.submitted_at,
            RunRow.id.in_(union(same_bytes, alike)),
        )
        .order_by(Submission.submitted_at, RunRow.id)
        .limit(MAX_CANDIDATES)
        .options(undefer(RunRow.curve))
    )
    return list(session.scalars(query))


def _evaluations(run: RunRow) -> list[Evaluation]:
    return [evaluation_of(row) for row in run.curve]
