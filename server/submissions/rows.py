"""Rows of a submission: how they are made, found and shown."""

import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session, undefer

from finishline.api.submissions import (
    CostBasisView,
    InferenceResultView,
    JudgedOnView,
    PackageFileView,
    PackageView,
    ResultView,
    SubmissionView,
    VerificationSummary,
    WithdrawalView,
)
from finishline.rules.archive.files import find_source
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import training_cost_usd
from finishline.rules.run import Run, curve_row
from finishline.rules.scoring.latency import IN_PERCENT, InferenceResult
from finishline.rules.scoring.scoring import COST_STEP, Result, RunScore
from finishline.rules.submissions.claim import System
from finishline.rules.submissions.submission import ScoredSubmission
from finishline.rules.verification.verdict import ChangedFigure
from server.base.artifacts import Staged
from server.base.database import find_row
from server.base.errors import NotFoundError, no_such
from server.base.models import Evidence as EvidenceRow
from server.base.models import (
    PublishedResult,
    RunRow,
    Submission,
    TrainingPackage,
)
from server.base.standing import (
    claimed_runs,
    decision_word,
    is_pending,
    published_verification,
)
from server.base.visibility import may_see, sees_source, viewer_of
from server.benchmarks.definitions import definition
from server.benchmarks.prices import BookCosts, SystemPrice
from server.people.callers import Caller, viewer_for

Row = dict[str, Any]
# A training has the first two figures, an inference the others.
FIGURE_COLUMNS = ("tta_seconds", "cost_usd", "latency_ms", "cost_usd_per_10000")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id() -> str:
    """Generate a short random id for a URL: 60 bits, 12 letters and digits."""
    return "".join(_ALPHABET[byte % 32] for byte in secrets.token_bytes(12))


def system_of_worker(hardware_class: str, system: Mapping[str, Any]) -> System:
    """Describe a worker as the system of a training: its class by name, and its machine."""
    names = ("processor", "processor_count", "memory_gib", "accelerator", "accelerator_count")
    own = {name: system[name] for name in names}
    return System(name=hardware_class, hardware_class=hardware_class, **own)


def result_figures(result: Result | InferenceResult) -> Row:
    """Return the figures of a result, by column."""
    figures = {name: getattr(result, name, None) for name in FIGURE_COLUMNS}
    return figures | {"eligible": result.eligible, "result": stored_result(result)}


def run_rows(scored: ScoredSubmission, logs: Mapping[str, Staged]) -> list[RunRow]:
    """Make the rows of a submission's runs, in order."""
    return [
        RunRow(
            index=index,
            file=run.name,
            log_sha256=logs[run.name].sha256,
            log_bytes=logs[run.name].size_bytes,
            **run_figures(run, score),
        )
        for index, (run, score) in enumerate(scored.scored_runs)
    ]


def run_figures(run: Run, score: RunScore) -> Row:
    """Return the figures derived from a run's log, by column."""
    return {
        "seed": run.seed,
        "reached": score.reached,
        "tta_seconds": score.tta_seconds,
        "epochs_to_target": score.epochs_to_target,
        "best_quality": score.best_quality,
        "batch_size": run.batch_size,
        "convergence": score.convergence,
        "ledger": table_of(run.ledger) if run.ledger is not None else None,
        "settings": dict(run.hyperparameters),
        "curve": [curve_row(evaluation) for evaluation in run.evaluations],
    }


def no_result(benchmark: Benchmark) -> Result:
    """Make the result of a submission without runs."""
    absent = dict.fromkeys(
        (
            *("tta_seconds", "tta_display", "tta_low_seconds", "tta_high_seconds", "cv_percent"),
            *("epochs_to_target", "cost_usd", "best_quality", "evaluation_interval_seconds"),
        )
    )
    return Result(
        benchmark_sha256=benchmark.sha256,
        clock=benchmark.clock.name,
        runs=(),
        started=0,
        reached=0,
        violations=(),
        **absent,  # type: ignore[arg-type]  # each may be None
    )


def stored_result(result: Result | InferenceResult) -> dict[str, Any]:
    """Convert a result of the rules to its stored JSON, without parts stored elsewhere."""
    table = table_of(result, without=("runs", "benchmark_sha256"))
    if isinstance(result, InferenceResult):
        table["given_in_percent"] = IN_PERCENT in result.flags
    return table


def table_of(record: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Convert a record of the rules, and the records in it, to tables.

    `asdict` would also copy their values, which takes longer than all the rest.
    """
    names = record.__dataclass_fields__
    return {name: _value_of(getattr(record, name)) for name in names if name not in without}


def _value_of(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return table_of(value)
    return tuple(map(_value_of, value)) if isinstance(value, tuple) else value


def source_row(benchmark_id: str, commit: str | None) -> Row | None:
    """Return the known archive of a result in stored form, if there is one."""
    source = find_source(commit, benchmark_id)
    return None if source is None else {"name": source.name, "url": source.url, "commit": commit}


# Columns of a submission copied from its claim.
SAID = (
    "benchmark_id", "division", "model", "framework", "kind", "code_url", "notes", "precision",
)  # fmt: skip


def find_published(session: Session, new: Submission) -> str | None:
    """Find the id of a stored published result with these logs and no contradicting fact.

    A later release of the command writes more facts into the claim of a set of an MLPerf round, so
    the same set comes under another key. An entry of DAWNBench is its bytes: another key is another
    entry.
    """
    if new.published is None or new.dawnbench is not None or not new.runs:
        return None
    stored = session.execute(
        select(Submission.id, Submission.system)
        .join(PublishedResult, PublishedResult.submission_id == Submission.id)
        .where(
            Submission.withdrawn_at.is_(None),
            PublishedResult.organisation == new.published.organisation,
            PublishedResult.published_on == new.published.published_on,
            *(getattr(Submission, name) == getattr(new, name) for name in SAID),
        )
    )
    alike = [
        name
        for name, system in stored
        if all(value in (None, new.system.get(field)) for field, value in system.items())
    ]
    logs = [(run.file, run.log_sha256) for run in new.runs]
    return next((name for name in alike if _logs_of(session, name) == logs), None)


def _logs_of(session: Session, submission_id: str) -> list[tuple[str, str]]:
    found = session.execute(
        select(RunRow.file, RunRow.log_sha256)
        .where(RunRow.submission_id == submission_id)
        .order_by(RunRow.index)
    )
    return [(file, sha256) for file, sha256 in found]


def find_visible(session: Session, caller: Caller, submission_id: str) -> Submission:
    """Find a submission to change. Raises NotFoundError also for one that its caller can't see."""
    submission = find_row(session, Submission, submission_id)
    if not may_see(viewer_for(caller), submission):
        raise no_such("submission", submission_id)
    return submission


def find_run(session: Session, submission_id: str, index: int) -> RunRow:
    """Find a run of a submission. Raises NotFoundError."""
    run = session.scalar(
        select(RunRow).where(RunRow.submission_id == submission_id, RunRow.index == index)
    )
    if run is None:
        find_row(session, Submission, submission_id)
        raise NotFoundError(
            f"Submission {submission_id!r} has no run {index}; `finishline show {submission_id}` "
            "lists its runs, from 0."
        )
    return run


def runs_with_curves(session: Session, submission_id: str) -> Sequence[RunRow]:
    """Read the runs of a submission in order, with their curves. Raises NotFoundError."""
    find_row(session, Submission, submission_id)
    return session.scalars(
        select(RunRow)
        .where(RunRow.submission_id == submission_id)
        .order_by(RunRow.index)
        .options(undefer(RunRow.curve))
        .execution_options(populate_existing=True)
    ).all()


def run_times(session: Session, *which: ColumnElement[bool]) -> dict[str, list[float]]:
    """Return the measured seconds of successful runs, by submission."""
    statement = (
        select(RunRow.submission_id, RunRow.tta_seconds)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(*which)
        .order_by(RunRow.submission_id, RunRow.index)
    )
    times: defaultdict[str, list[float]] = defaultdict(list)
    for submission_id, seconds in session.execute(statement):
        if seconds is not None:
            times[submission_id].append(seconds)
    return times


def result_view(submission: Submission, price: SystemPrice) -> ResultView | InferenceResultView:
    """Make the view of a stored result."""
    stored = submission.result | {"eligible": submission.eligible}
    if submission.kind == "inference":
        return InferenceResultView(**stored)
    return ResultView(**(stored | _costs(submission, price)))


def cost_basis(system: dict[str, Any], price: SystemPrice) -> CostBasisView | None:
    """Describe the basis of a cost at a price, if there is a price."""
    if price.usd_per_hour is None:
        return None
    if price.entry is None:
        return CostBasisView.of(
            price, source="claim", count=None, source_url=system["price_source"]
        )
    entry = price.entry
    return CostBasisView.of(
        price,
        source="price_book",
        price=entry.id,
        effective_on=entry.effective_on,
        source_url=entry.source_url,
    )


def _costs(submission: Submission, price: SystemPrice) -> dict[str, Any]:
    """Replace the claimed cost by the cost at a price, also in the step that explains it."""
    tta_seconds = submission.result["tta_seconds"]
    cost = training_cost_usd(tta_seconds, price.usd_per_hour)
    numbers = {"TTA (s)": tta_seconds, "price (USD/h)": price.usd_per_hour}
    return {
        "cost_usd": cost,
        "cost_basis": cost_basis(submission.system, price),
        "steps": [
            step | {"numbers": numbers, "value": cost} if step["name"] == COST_STEP else step
            for step in submission.result["steps"]
        ],
    }


def judged_on_others(session: Session, submission: Submission) -> JudgedOnView | None:
    """Find the figures behind a verdict that rescoring has changed since."""
    published = published_verification(submission)
    evidence = None if published is None else session.get(EvidenceRow, published.id)
    if published is None or evidence is None:
        return None
    figures = changed_figures(evidence.submission["runs"], claimed_runs(submission))
    same_definition = evidence.benchmark_sha256 == submission.benchmark_sha256
    if not figures and same_definition:
        return None
    return JudgedOnView(
        verification_id=published.id,
        judged_at=evidence.created_at,
        benchmark_sha256=None if same_definition else evidence.benchmark_sha256,
        figures=figures,
    )


def submission_view(
    session: Session,
    submission: Submission,
    *,
    benchmark: Benchmark | None = None,
    costs: BookCosts | None = None,
) -> SubmissionView:
    """Make the view of a submission. Pass `benchmark` for an unsaved one, `costs` for many."""
    benchmark = benchmark or definition(session, submission.benchmark_sha256)
    costs = costs or BookCosts(session)
    published, withdrawal = published_verification(submission), None
    if submission.withdrawn_at is not None:
        withdrawal = WithdrawalView(
            at=submission.withdrawn_at,
            by=submission.withdrawn_by or "",
            reason=submission.withdrawn_because or "",
        )
    package = submission.trained_package
    kind = "code" if package is not None else "logs"
    shows_factors = package is not None and sees_source(viewer_of(session), submission)
    return SubmissionView.of(
        submission,
        kind="inference" if submission.kind == "inference" else kind,
        benchmark=submission.benchmark_id,
        benchmark_version=benchmark.version,
        submitted_on=submission.published_on,
        archive=submission.published is not None,
        result=result_view(submission, costs.price(submission)),
        runs=submission.runs,
        verifications=[
            VerificationSummary.of(
                verification,
                decision=decision_word(verification, submission),
                published=verification is published,
            )
            for verification in submission.verifications
        ],
        published_verification=published.id if published is not None else None,
        pending_decisions=[
            each.id for each in submission.verifications if is_pending(each, submission)
        ],
        under_embargo=submission.embargoed,
        withdrawal=withdrawal,
        retirement=submission.retirement and WithdrawalView(**submission.retirement),
        waivers=submission.waivers or (),
        package=package and package_view(package, with_files=False, with_factors=shows_factors),
        check=submission.check_word,
        claimed_seconds=submission.tta_seconds,
        source=None if submission.published is None else submission.published.source,
    )


def changed_view(session: Session, submission: Submission) -> SubmissionView:
    """Make the view of a submission as the session changed it."""
    session.flush()
    session.refresh(submission)
    return submission_view(session, submission)


def package_view(
    package: TrainingPackage, *, with_files: bool, with_factors: bool | None = None
) -> PackageView:
    """Make the view of code, with or without file names and the words of its ablations."""
    manifest = package.manifest
    files = sorted(package.files.items()) if with_files else []
    shows_factors = with_files if with_factors is None else with_factors
    return PackageView.of(
        package,
        sha256=package.package_sha256,
        title=manifest["title"],
        module=manifest["module"],
        license=manifest["licence"],
        based_on=manifest["based_on"],
        deterministic=manifest["deterministic"],
        determinism=(package.determinism or "not checked") if manifest["deterministic"] else None,
        precision=manifest["precision"],
        factors=(manifest["factors"] or {}) if shows_factors else {},
        files=[PackageFileView(name=name, size_bytes=len(text.encode())) for name, text in files],
    )


# Figures of a run that a verdict rests on: epochs, times and quality.
JUDGED = ("reached", "tta_seconds", "epochs_to_target", "best_quality")
# Last digits may differ between machines.
RELATIVE_TOLERANCE = 1e-9


def changed_figures(
    judged: Sequence[Mapping[str, Any]], now: Sequence[RunScore]
) -> list[ChangedFigure]:
    """List the figures of runs differing from the figures of a verdict, by file."""
    before = {str(run["file"]): run for run in judged}
    after = {run.file: asdict(run) for run in now}
    return [
        ChangedFigure(file, field, old, new)
        for file in dict.fromkeys([*before, *after])
        for field in JUDGED
        if _differ(old := before.get(file, {}).get(field), new := after.get(file, {}).get(field))
    ]


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is not other
    return bool(abs(one - other) > RELATIVE_TOLERANCE * max(abs(one), abs(other)))
