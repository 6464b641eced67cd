"""Rescore submissions from their raw logs, which never change, a batch at a time."""

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

from fastapi import APIRouter
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from finishline.api.rescoring import BATCH_SUBMISSIONS, RescoreRequest, RescoreView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.submission import ScoredSubmission, score_submission
from finishline.rules.text import count_text
from server.base.board_versions import raise_board_version
from server.base.errors import ConflictError, ServerError
from server.base.models import RunRow, Submission, TrainingPackage
from server.base.services import Services, ServicesDep
from server.base.standing import verification_under_way
from server.base.viewer import ORGANISER
from server.benchmarks.queries import definition, find_benchmark, keep_definition
from server.people.audit import Actor, Administrator, Subject, record
from server.people.dependencies import OrganiserDep
from server.submissions.rows import (
    Change,
    Figures,
    derived_figures,
    differences,
    result_figures,
    run_figures,
    stored_figures,
)
from server.submissions.service import (
    find_submission,
    lock_submissions,
    read_cursor,
    runs_with_curves,
    write_cursor,
)
from server.submissions.upload import LogFiles
from server.submissions.waivers import is_waived

# A request that takes longer looks like a server that hangs.
BATCH_SECONDS = 5.0


@dataclass(frozen=True)
class Choice:
    """Submissions to rescore, of one benchmark if it is named, and how.

    They are rescored under the definition each result names, or under the `current` one; a dry run
    stores nothing. The audit log names the `actor`.
    """

    benchmark_id: str | None = None
    current: bool = False
    dry_run: bool = False
    actor: Actor = field(default_factory=Administrator)


@dataclass(frozen=True)
class Changed:
    """A submission with figures that changed."""

    id: str
    changes: list[Change]


@dataclass(frozen=True)
class Failed:
    """A submission that could not be rescored; it is left as it is."""

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

    def take(self, more: "Summary") -> None:
        """Add the counts of another batch."""
        self.submissions += more.submissions
        self.unchanged += more.unchanged
        self.changed += more.changed
        self.failed += more.failed


@dataclass(frozen=True)
class Batch:
    """Rescored submissions, how many there are in all, and the cursor of the next batch."""

    summary: Summary
    total: int
    next_cursor: str | None


def rescore_submissions(
    services: Services, choice: Choice, progress: Callable[[str], None]
) -> Summary:
    """Rescore every chosen submission and store the changes. Raises as `rescore_batch`."""
    summary, cursor = _nothing(choice), None
    while True:
        batch = rescore_batch(services, choice, cursor=cursor)
        for changed in batch.summary.changed:
            progress(f"{changed.id}: {', '.join(map(str, changed.changes))}")
        for failed in batch.summary.failed:
            progress(f"{failed.id}: could not be scored again: {failed.error}")
        summary.take(batch.summary)
        progress(f"{summary.submissions} of {count_text(batch.total, 'submission')}")
        cursor = batch.next_cursor
        if cursor is None:
            return summary


def rescore_batch(
    services: Services, choice: Choice, *, cursor: str | None, limit: int = BATCH_SUBMISSIONS
) -> Batch:
    """Rescore the chosen submissions after `cursor`, the oldest first, and store the changes.

    At most `limit`, and none is started after BATCH_SECONDS. Each is one transaction with the
    version of its board; one that cannot be rescored is left as it is and reported, and the rest go
    on. Raises NotFoundError for an unknown benchmark, ContentError for an invalid cursor.
    """
    if choice.benchmark_id is not None:
        find_benchmark(services.benchmarks, choice.benchmark_id)
    summary, end = _nothing(choice), time.monotonic() + BATCH_SECONDS
    with services.database.read(ORGANISER) as session:
        total = session.scalar(select(func.count(Submission.id)).where(_chosen(choice))) or 0
        places = _places_after(session, choice, cursor, limit=limit + 1)
    for place in places[:limit]:
        _count_in(summary, services, place.id, choice)
        if time.monotonic() >= end:
            break
    done = summary.submissions
    more = len(places) > done
    return Batch(summary, total=total, next_cursor=write_cursor(places[done - 1]) if more else None)


def _nothing(choice: Choice) -> Summary:
    return Summary(definition="current" if choice.current else "stored", dry_run=choice.dry_run)


def _chosen(choice: Choice) -> ColumnElement[bool]:
    """Every submission that has logs of its own: a package has none."""
    with_logs = Submission.id.not_in(select(TrainingPackage.submission_id))
    if choice.benchmark_id is None:
        return with_logs
    return with_logs & (Submission.benchmark_id == choice.benchmark_id)


def _places_after(
    session: Session, choice: Choice, cursor: str | None, *, limit: int
) -> Sequence[Any]:
    columns = (Submission.submitted_at, Submission.id)
    query = select(*columns).where(_chosen(choice)).order_by(*columns).limit(limit)
    if cursor is not None:
        moment, last_id = read_cursor(cursor)
        later = Submission.submitted_at > moment
        query = query.where(
            later | ((Submission.submitted_at == moment) & (Submission.id > last_id))
        )
    return session.execute(query).all()


def _count_in(summary: Summary, services: Services, submission_id: str, choice: Choice) -> None:
    summary.submissions += 1
    try:
        changes = _rescore(services, submission_id, choice)
    except (RuleError, ServerError) as error:
        summary.failed.append(Failed(submission_id, str(error)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        # The stored logs are damaged; the kind of damage is in the name of the exception.
        summary.failed.append(Failed(submission_id, f"{type(error).__name__}: {error}"))
    else:
        summary.unchanged += not changes
        if changes:
            summary.changed.append(Changed(submission_id, changes))


def _rescore(services: Services, submission_id: str, choice: Choice) -> list[Change]:
    with services.database.read(ORGANISER) as session:
        submission = find_submission(session, submission_id)
        benchmark = _definition_for(services, session, submission, current=choice.current)
        before = stored_figures(submission, runs_with_curves(session, submission_id))
    scored = _score_again(services, submission, benchmark)
    derived = derived_figures(scored, benchmark, is_published=submission.published is not None)
    derived["eligible"] = derived["eligible"] or is_waived(submission, derived["result"])
    changes = differences(before, derived)
    if changes and not choice.dry_run:
        read_under = submission.benchmark_sha256
        kept = _Kept(scored, benchmark, changes, read_under, choice.actor)
        _keep(services, submission_id, kept)
    return changes


def _definition_for(
    services: Services, session: Session, submission: Submission, *, current: bool
) -> Benchmark:
    if not current:
        return definition(session, submission.benchmark_sha256)
    benchmark = find_benchmark(services.benchmarks, submission.benchmark_id)
    if benchmark.sha256 != submission.benchmark_sha256:
        _refuse_while_verified(session, submission.id)
    return benchmark


def _refuse_while_verified(session: Session, submission_id: str) -> None:
    """Raise ConflictError during a verification: a replay is judged under one definition."""
    if verification_under_way(session, submission_id) is not None:
        raise ConflictError("It is being verified under its own definition; try again afterwards.")


def _score_again(
    services: Services, submission: Submission, benchmark: Benchmark
) -> ScoredSubmission:
    """Score a submission; if it breaks a rule of today it is not refused but not ranked."""
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


@dataclass(frozen=True)
class _Kept:
    """Rescored submission, and the definition under which it was read before."""

    scored: ScoredSubmission
    benchmark: Benchmark
    changes: Sequence[Change]
    read_under: str
    actor: Actor


def _keep(
    services: Services,
    submission_id: str,
    kept: _Kept,
) -> None:
    """Store the derived figures, raise the board's version and log it, in one transaction."""
    scored, benchmark, read_under = kept.scored, kept.benchmark, kept.read_under
    with services.database.write() as session:
        lock_submissions(session, submission_id)
        submission = find_submission(session, submission_id)
        if submission.benchmark_sha256 != read_under:
            raise ConflictError("It was scored under another definition meanwhile; try again.")
        if benchmark.sha256 != read_under:
            _refuse_while_verified(session, submission_id)
            keep_definition(session, benchmark, services.settings.benchmarks_dir)
            submission.benchmark_sha256 = benchmark.sha256
        _set(submission, result_figures(scored.result))
        if submission.published is not None:
            submission.published.published_on = scored.claim.submitted_on
        rows = runs_with_curves(session, submission_id)
        for row, (run, score) in zip(rows, scored.scored_runs, strict=True):
            _set(row, run_figures(run, score))
        raise_board_version(session, submission.benchmark_id, submission_id=submission.id)
        record(
            session,
            kept.actor,
            "submission.rescore",
            Subject("submission", submission_id),
            reason=None,
            before={change.field: change.before for change in kept.changes},
            after={change.field: change.after for change in kept.changes},
        )


def _set(row: Submission | RunRow, figures: Figures) -> None:
    for name, value in figures.items():
        setattr(row, name, value)


def rescore_view(batch: Batch) -> RescoreView:
    """View of a batch."""
    return RescoreView(**asdict(batch.summary), total=batch.total, next_cursor=batch.next_cursor)


router = APIRouter(tags=["rescoring"])


@router.post("/rescore")
def start_rescoring(
    body: RescoreRequest, services: ServicesDep, caller: OrganiserDep
) -> RescoreView:
    """Rescore submissions from their raw logs, the oldest first, and store the changes.

    A batch ends after a few seconds, so that no request takes long: send the same body with
    `cursor` set to the answer's `next_cursor` until that is null. Repeating it changes nothing.
    """
    choice = Choice(
        benchmark_id=body.benchmark,
        current=body.definition == "current",
        dry_run=body.dry_run,
        actor=caller,
    )
    batch = rescore_batch(services, choice, cursor=body.cursor, limit=body.limit)
    return rescore_view(batch)
