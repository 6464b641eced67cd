"""Rescore submissions from their raw logs, which never change."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.submission import ScoredSubmission, score_submission
from server.base.board_versions import raise_board_version
from server.base.errors import ConflictError, ServerError
from server.base.models import RunRow, Submission, TrainingPackage
from server.base.services import Services
from server.base.standing import verification_under_way
from server.base.viewer import ORGANISER
from server.benchmarks.queries import definition, find_benchmark, keep_definition
from server.people.audit import Administrator, Subject, record
from server.submissions.rows import (
    Change,
    Figures,
    derived_figures,
    differences,
    result_figures,
    run_figures,
    stored_figures,
)
from server.submissions.service import find_submission, runs_with_curves
from server.submissions.upload import LogFiles
from server.submissions.waivers import is_waived


@dataclass(frozen=True)
class Changed:
    """A submission with figures that changed."""

    id: str
    changes: list[Change]


@dataclass(frozen=True)
class Failed:
    """A submission that could not be rescored and is left as it is."""

    id: str
    error: str


@dataclass
class Summary:
    """Result of rescoring submissions."""

    definition: str
    dry_run: bool
    submissions: int = 0
    unchanged: int = 0
    changed: list[Changed] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)


def rescore_submissions(
    services: Services,
    *,
    benchmark_id: str | None = None,
    current: bool = False,
    dry_run: bool = False,
    progress: Callable[[str], None],
) -> Summary:
    """Rescore submissions, the oldest first, each in one transaction with its board."""
    summary = Summary("current" if current else "stored", dry_run)
    for submission_id in _submissions_of(services, benchmark_id):
        summary.submissions += 1
        try:
            changes = _rescore(services, submission_id, current=current, dry_run=dry_run)
        except (RuleError, ServerError) as error:
            summary.failed.append(Failed(submission_id, str(error)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            # The stored logs are damaged. The kind of damage is in the name of the exception.
            summary.failed.append(Failed(submission_id, f"{type(error).__name__}: {error}"))
        else:
            summary.unchanged += not changes
            if changes:
                summary.changed.append(Changed(submission_id, changes))
                progress(f"{submission_id}: {', '.join(map(str, changes))}")
    for failed in summary.failed:
        progress(f"{failed.id}: could not be rescored: {failed.error}")
    return summary


def _submissions_of(services: Services, benchmark_id: str | None) -> Sequence[str]:
    query = (
        select(Submission.id)
        .where(Submission.id.not_in(select(TrainingPackage.submission_id)))
        .order_by(Submission.submitted_at, Submission.id)
    )
    if benchmark_id is not None:
        find_benchmark(services.benchmarks, benchmark_id)
        query = query.where(Submission.benchmark_id == benchmark_id)
    with services.database.read(ORGANISER) as session:
        return session.scalars(query).all()


def _rescore(
    services: Services, submission_id: str, *, current: bool, dry_run: bool
) -> list[Change]:
    with services.database.read(ORGANISER) as session:
        submission = find_submission(session, submission_id)
        if current:
            benchmark = find_benchmark(services.benchmarks, submission.benchmark_id)
            _refuse_while_verified(session, submission, benchmark)
        else:
            benchmark = definition(session, submission.benchmark_sha256)
        before = stored_figures(submission, runs_with_curves(session, submission_id))
    scored = _score_again(services, submission, benchmark)
    derived = derived_figures(scored, benchmark, is_published=submission.published is not None)
    derived["eligible"] = derived["eligible"] or is_waived(submission, derived["result"])
    changes = differences(before, derived)
    if changes and not dry_run:
        _store(services, submission, scored, benchmark, changes)
    return changes


def _refuse_while_verified(session: Session, submission: Submission, under: Benchmark) -> None:
    """Raise ConflictError during a verification: a replay is judged under one definition."""
    if under.sha256 == submission.benchmark_sha256:
        return
    if verification_under_way(session, submission.id) is not None:
        raise ConflictError("It is being verified under its own definition; try again afterwards.")


def _score_again(
    services: Services, submission: Submission, benchmark: Benchmark
) -> ScoredSubmission:
    """Score a submission. If it breaks a rule of today it is not refused but not ranked."""
    logs = {run.file: run.log_sha256 for run in submission.runs}
    return score_submission(
        _read(services, submission.claim_sha256, what="the submission's JSON"),
        LogFiles(logs, lambda name: _read(services, logs[name], what=name)),
        {benchmark.benchmark_id: benchmark},
        benchmark_id=submission.benchmark_id,
        division=submission.division,
        archive=True,
    )


def _read(services: Services, sha256: str, *, what: str) -> bytes:
    try:
        with closing(services.artifacts.open(sha256)) as stored:
            content = stored.read()
    except OSError as error:
        reason = error.strerror or error
        raise ConflictError(
            f"{what} cannot be read from the artifact store ({reason}); expected a file of "
            f"SHA-256 {sha256}."
        ) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ConflictError(f"{what} in the artifact store differs from the upload (SHA-256).")
    return content


def _store(
    services: Services,
    scored_before: Submission,
    scored: ScoredSubmission,
    benchmark: Benchmark,
    changes: Sequence[Change],
) -> None:
    with services.database.write() as session:
        submission = find_submission(session, scored_before.id)
        if submission.benchmark_sha256 != scored_before.benchmark_sha256:
            raise ConflictError("It was scored under another definition meanwhile; try again.")
        _refuse_while_verified(session, submission, benchmark)
        if benchmark.sha256 != submission.benchmark_sha256:
            keep_definition(session, benchmark, services.settings.benchmarks_dir)
            submission.benchmark_sha256 = benchmark.sha256
        _set(submission, result_figures(scored.result))
        if submission.published is not None:
            submission.published.published_on = scored.claim.submitted_on
        rows = runs_with_curves(session, submission.id)
        for row, (run, score) in zip(rows, scored.scored_runs, strict=True):
            _set(row, run_figures(run, score))
        raise_board_version(session, submission.benchmark_id, submission_id=submission.id)
        record(
            session,
            Administrator(),
            "submission.rescore",
            Subject("submission", submission.id),
            reason=None,
            before={change.field: change.before for change in changes},
            after={change.field: change.after for change in changes},
        )


def _set(row: Submission | RunRow, figures: Figures) -> None:
    for name, value in figures.items():
        setattr(row, name, value)
