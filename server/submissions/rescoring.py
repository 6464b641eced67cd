"""Rescore submissions from their raw logs, which never change."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.submission import ScoredSubmission, score_submission
from server.base.board_versions import raise_board_version
from server.base.database import Services, find_row
from server.base.errors import ConflictError, ServerError
from server.base.models import RunRow, Submission, TrainingPackage
from server.base.standing import verification_under_way
from server.base.visibility import ORGANISER
from server.benchmarks.definitions import definition, find_benchmark
from server.people.audit import Administrator, record
from server.submissions.rows import result_figures, run_figures, runs_with_curves
from server.submissions.standing_changes import is_waived
from server.submissions.upload import LogFiles

# Longer lists, such as curves and steps, are reported by their length.
LONG_LIST = 4
DAY = "submitted_on"  # The API's name of the day of publication.
Figures = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """A stored figure differing from the derived one."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.field} {self.before} -> {self.after}"


@dataclass
class Summary:
    """Result of rescoring: each changed submission, and each failure."""

    definition: str
    dry_run: bool
    submissions: int = 0
    unchanged: int = 0
    changed: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)


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
    query = (
        select(Submission.id)
        .where(Submission.id.not_in(select(TrainingPackage.submission_id)))
        .order_by(Submission.submitted_at, Submission.id)
    )
    if benchmark_id is not None:
        find_benchmark(services.benchmarks, benchmark_id)
        query = query.where(Submission.benchmark_id == benchmark_id)
    with services.database.read(ORGANISER) as session:
        ids = session.scalars(query).all()
    for submission_id in ids:
        summary.submissions += 1
        try:
            changes = _rescore(services, submission_id, current=current, dry_run=dry_run)
        except (RuleError, ServerError) as error:
            summary.failed.append({"id": submission_id, "error": str(error)})
        except (OSError, ValueError, KeyError, TypeError) as error:
            # The stored logs are damaged. The kind of damage is in the name of the exception.
            words = f"{type(error).__name__}: {error}"
            summary.failed.append({"id": submission_id, "error": words})
        else:
            summary.unchanged += not changes
            if changes:
                summary.changed.append({"id": submission_id, "changes": changes})
                progress(f"{submission_id}: {', '.join(map(str, changes))}")
    for failed in summary.failed:
        progress(f"{failed['id']}: could not be rescored: {failed['error']}")
    return summary


def _rescore(
    services: Services, submission_id: str, *, current: bool, dry_run: bool
) -> list[Change]:
    database = services.database
    with database.read(ORGANISER) if dry_run else database.write() as session:
        submission = find_row(session, Submission, submission_id)
        benchmark = definition(session, submission.benchmark_sha256)
        if current:
            benchmark = find_benchmark(services.benchmarks, submission.benchmark_id)
            is_other = benchmark.sha256 != submission.benchmark_sha256
            # A replay is judged under one definition.
            if is_other and verification_under_way(session, submission_id) is not None:
                raise ConflictError(
                    "It is being verified under its own definition; try again afterwards."
                )
        rows = runs_with_curves(session, submission_id)
        derived = _derived(_score_again(services, submission, benchmark), benchmark, submission)
        changes = differences(_stored(submission, rows, derived), derived)
        if changes and not dry_run:
            _change(session, submission, rows, derived, changes)
    return changes


def _score_again(
    services: Services, submission: Submission, benchmark: Benchmark
) -> ScoredSubmission:
    """Score a submission. If it breaks a rule of today, it stays but is not ranked."""
    logs = {
        run.file: partial(_read, services, run.log_sha256, what=run.file) for run in submission.runs
    }
    return score_submission(
        _read(services, submission.claim_sha256, what="the submission's JSON"),
        LogFiles(logs),
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


def _derived(scored: ScoredSubmission, benchmark: Benchmark, submission: Submission) -> Figures:
    figures = result_figures(scored.result) | {"benchmark_sha256": benchmark.sha256}
    figures["eligible"] = figures["eligible"] or is_waived(submission, figures["result"])
    if submission.published is not None:
        figures[DAY] = scored.claim.submitted_on
    runs = [run_figures(run, score) | {"file": run.name} for run, score in scored.scored_runs]
    return _as_stored(figures | {"runs": runs})


def _stored(submission: Submission, rows: Sequence[RunRow], derived: Figures) -> Figures:
    own = derived.keys() - {"runs", DAY}
    figures = {name: getattr(submission, name) for name in own}
    if DAY in derived:
        figures[DAY] = submission.published_on
    names = derived["runs"][0] if derived["runs"] else ()
    runs = [{name: getattr(row, name) for name in names} for row in rows]
    return _as_stored(figures | {"runs": runs})


def _as_stored(figures: Figures) -> Figures:
    """Convert tuples to lists, as a database does."""
    stored: Figures = orjson.loads(orjson.dumps(figures))
    return stored


def differences(before: Figures, after: Figures) -> list[Change]:
    """List every differing figure, under names such as "tta_seconds" or "runs[0].seed"."""
    old, new = _flat(before), _flat(after)
    names = [*new, *(name for name in old if name not in new)]
    return [
        Change(name, _shown(old.get(name)), _shown(new.get(name)))
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    ]


def _flat(figures: Figures) -> Figures:
    flat = {name: value for name, value in figures.items() if name not in ("result", "runs")}
    flat |= {f"result.{name}": value for name, value in figures["result"].items()}
    for place, run in enumerate(figures["runs"]):
        flat |= {f"runs[{place}].{name}": value for name, value in run.items()}
    return flat


def _shown(value: Any) -> Any:
    if isinstance(value, list) and len(value) > LONG_LIST:
        return f"{len(value)} items"
    return value


def _change(
    session: Session,
    submission: Submission,
    rows: Sequence[RunRow],
    derived: Figures,
    changes: Sequence[Change],
) -> None:
    if submission.published is not None:
        day = derived[DAY]
        submission.published.published_on = None if day is None else date.fromisoformat(day)
    own = {name: derived[name] for name in derived.keys() - {"runs", DAY}}
    figures = zip(rows, derived["runs"], strict=True)
    for row, found in ((submission, own), *figures):
        for name, value in found.items():
            setattr(row, name, value)
    raise_board_version(session, submission.benchmark_id, submission_id=submission.id)
    before = {change.field: change.before for change in changes}
    after = {change.field: change.after for change in changes}
    record(session, Administrator(), "submission.rescore", submission, before=before, after=after)
