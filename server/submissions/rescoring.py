"""Every result derived again from its raw logs, which never change."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.errors import RuleError
from rules.submission import ScoredSubmission, score_submission
from server.audit.service import Administrator, Subject, record
from server.benchmarks.queries import definition, find_benchmark, keep_definition
from server.dependencies import Parts
from server.errors import ConflictError, ServerError
from server.leaderboard.service import raise_board_version
from server.models import Submission
from server.submissions.queries import find_submission, runs_with_curves
from server.submissions.service import result_figures, run_figures
from server.verifications.queries import OPEN

PROGRESS_EVERY = 20
# A list in a report is worth its length: curves and steps are long.
LONG_LIST = 4
Figures = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """A stored figure that came out differently."""

    field: str
    before: Any
    after: Any


@dataclass
class Summary:
    """What scoring everything again came to."""

    definition: str
    dry_run: bool
    submissions: int = 0
    unchanged: int = 0
    changed: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)


def rescore_submissions(
    parts: Parts,
    *,
    benchmark_id: str | None,
    current: bool,
    dry_run: bool,
    progress: Callable[[str], None],
) -> Summary:
    """Score every submission again, of one benchmark if it is named, and keep what changed.

    Under the definition each result names, or under the `current` one. Each submission is one
    transaction with the version of its board; one that cannot be scored again is left as it is
    and reported, and the rest go on. Raises NotFoundError for an unknown benchmark.
    """
    if benchmark_id is not None:
        find_benchmark(parts.benchmarks, benchmark_id)
    ids = _submission_ids(parts, benchmark_id)
    summary = Summary(definition="current" if current else "stored", dry_run=dry_run)
    for submission_id in ids:
        summary.submissions += 1
        try:
            changes = _rescore(parts, submission_id, current=current, dry_run=dry_run)
        except (RuleError, ServerError, OSError, ValueError, KeyError, TypeError) as error:
            summary.failed.append({"id": submission_id, "error": f"{error}"})
            progress(f"{submission_id}: could not be scored again: {error}")
        else:
            if changes:
                shown = [{"field": c.field, "before": c.before, "after": c.after} for c in changes]
                summary.changed.append({"id": submission_id, "changes": shown})
                progress(f"{submission_id}: {', '.join(_sentence(c) for c in changes)}")
            summary.unchanged += not changes
        if summary.submissions % PROGRESS_EVERY == 0 or summary.submissions == len(ids):
            progress(f"{summary.submissions} of {len(ids)} submissions")
    return summary


def _submission_ids(parts: Parts, benchmark_id: str | None) -> list[str]:
    query = select(Submission.id).order_by(Submission.submitted_at, Submission.id)
    if benchmark_id is not None:
        query = query.where(Submission.benchmark_id == benchmark_id)
    with parts.database.read() as session:
        return list(session.scalars(query))


def _rescore(parts: Parts, submission_id: str, *, current: bool, dry_run: bool) -> list[Change]:
    with parts.database.read() as session:
        submission = find_submission(session, submission_id)
        benchmark = _definition_for(parts, session, submission, current=current)
        scored = _score_again(parts, submission, benchmark)
        before = _stored_figures(session, submission)
    after = _derived_figures(scored, benchmark)
    changes = _differences(before, after)
    if changes and not dry_run:
        read_under = submission.benchmark_sha256
        _keep(parts, submission_id, scored, benchmark, changes=changes, read_under=read_under)
    return changes


def _definition_for(
    parts: Parts, session: Session, submission: Submission, *, current: bool
) -> Benchmark:
    if not current:
        return definition(session, submission.benchmark_sha256)
    benchmark = find_benchmark(parts.benchmarks, submission.benchmark_id)
    if _is_under_way(submission) and benchmark.sha256 != submission.benchmark_sha256:
        raise ConflictError("It is being verified under its own definition; try again afterwards.")
    return benchmark


def _score_again(parts: Parts, submission: Submission, benchmark: Benchmark) -> ScoredSubmission:
    """A submission that breaks a rule of today is not refused any more: it is not ranked."""
    return score_submission(
        _read(parts, submission.claim_sha256, what="the submission's JSON"),
        {run.file: _read(parts, run.log_sha256, what=run.file) for run in submission.runs},
        {benchmark.benchmark_id: benchmark},
        benchmark_id=submission.benchmark_id,
        division=submission.division,
        archive=True,
    )


def _read(parts: Parts, sha256: str, *, what: str) -> bytes:
    content = parts.artifacts.path_of(sha256).read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ConflictError(f"{what} in the artifact store is not what was sent (SHA-256 differs).")
    return content


def _stored_figures(session: Session, submission: Submission) -> Figures:
    runs = runs_with_curves(session, submission.id)
    figures = {
        "benchmark_sha256": submission.benchmark_sha256,
        "eligible": submission.eligible,
        "tta_seconds": submission.tta_seconds,
        "cost_usd": submission.cost_usd,
        "result": submission.result,
        "runs": [
            {name: getattr(run, name) for name in RUN_COLUMNS} | {"file": run.file} for run in runs
        ],
    }
    return _as_stored(figures)


RUN_COLUMNS = (
    "seed",
    "reached",
    "tta_seconds",
    "epochs_to_target",
    "best_quality",
    "batch_size",
    "convergence",
    "ledger",
    "curve",
)


def _derived_figures(scored: ScoredSubmission, benchmark: Benchmark) -> Figures:
    runs = zip(scored.runs, scored.result.runs, strict=True)
    figures = {
        "benchmark_sha256": benchmark.sha256,
        **result_figures(scored.result),
        "runs": [run_figures(run, score) | {"file": run.name} for run, score in runs],
    }
    return _as_stored(figures)


def _as_stored(figures: Figures) -> Figures:
    """As they come back from the database: tuples are lists there."""
    stored: Figures = orjson.loads(orjson.dumps(figures))
    return stored


def _differences(before: Figures, after: Figures) -> list[Change]:
    old, new = _flat(before), _flat(after)
    names = [*new, *(name for name in old if name not in new)]
    return [
        Change(name, _shown(old.get(name)), _shown(new.get(name)))
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    ]


def _flat(figures: Figures) -> Figures:
    """Figures by the names a report uses: "tta_seconds", "result.cv_percent", "runs[0].seed"."""
    flat = {name: value for name, value in figures.items() if name not in ("result", "runs")}
    flat |= {f"result.{name}": value for name, value in figures["result"].items()}
    for place, run in enumerate(figures["runs"]):
        flat |= {f"runs[{place}].{name}": value for name, value in run.items()}
    return flat


def _shown(value: Any) -> Any:
    if isinstance(value, list) and len(value) > LONG_LIST:
        return f"{len(value)} items"
    return value


def _sentence(change: Change) -> str:
    return f"{change.field} {change.before} -> {change.after}"


def _keep(
    parts: Parts,
    submission_id: str,
    scored: ScoredSubmission,
    benchmark: Benchmark,
    *,
    changes: list[Change],
    read_under: str,
) -> None:
    """Store what was derived, raise the board's version and log it, in one transaction."""
    with parts.database.write() as session:
        submission = find_submission(session, submission_id)
        if submission.benchmark_sha256 != read_under:
            raise ConflictError("It was scored under another definition meanwhile; try again.")
        if benchmark.sha256 != read_under:
            if _is_under_way(submission):
                raise ConflictError("Its verification began meanwhile; try again afterwards.")
            keep_definition(session, benchmark, parts.settings.benchmarks_dir)
            submission.benchmark_sha256 = benchmark.sha256
        _set(submission, result_figures(scored.result))
        for row, run, score in zip(
            runs_with_curves(session, submission_id),
            scored.runs,
            scored.result.runs,
            strict=True,
        ):
            _set(row, run_figures(run, score))
        raise_board_version(session, submission.benchmark_id)
        record(
            session,
            Administrator(),
            "submission.rescore",
            Subject("submission", submission_id),
            reason=None,
            before={change.field: change.before for change in changes},
            after={change.field: change.after for change in changes},
        )


def _is_under_way(submission: Submission) -> bool:
    """Whether a replay is sealed under the definition that a submission has."""
    return any(verification.state in OPEN for verification in submission.verifications)


def _set(row: object, figures: Figures) -> None:
    for name, value in figures.items():
        setattr(row, name, value)
