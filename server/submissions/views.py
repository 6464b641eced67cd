"""Views of stored submissions, their results and runs, and an example of a claim."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

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
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import training_cost_usd
from finishline.rules.scoring.scoring import COST_STEP, RunScore
from finishline.rules.verification.verdict import ChangedFigure
from server.base.models import Evidence as EvidenceRow
from server.base.models import Submission, TrainingPackage
from server.base.standing import (
    claimed_runs,
    decision_word,
    pending_verifications,
    published_verification,
)
from server.base.visibility import sees_source, viewer_of
from server.benchmarks.definitions import definition
from server.benchmarks.prices import BookCosts, SystemPrice

EXAMPLE_CLAIM = {
    "benchmark": "digits",
    "division": "closed",
    "model": "digits reference",
    "framework": "torch 2.13.0",
    "system": {
        "name": "my laptop",
        "hardware_class": "cpu-amd-ryzen-7-7840u-16-cores",
        "processor": "AMD Ryzen 7 7840U",
        "processor_count": 16,
        "memory_gib": 32,
    },
    "hyperparameters": {"batch_size": 64},
    "trained_with": "reference",
    "tuning": {"trials": 40, "seconds": 3600},
    "runs": ["run_0.log", "run_1.log", "run_2.log"],
}


def result_view(submission: Submission, price: SystemPrice) -> ResultView | InferenceResultView:
    """View of a stored result."""
    stored = submission.result | {"eligible": submission.eligible}
    if submission.kind == "inference":
        return InferenceResultView(**stored)
    return ResultView(**(stored | _costs(submission, price)))


def cost_basis(system: dict[str, Any], price: SystemPrice) -> CostBasisView | None:
    """Basis of a cost at a price. None without a price."""
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
    """Cost at a price, also in the step that explains it: the stored cost is as claimed."""
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
    """Figures behind a verdict that rescoring has since changed, None if none did."""
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
    """View of a submission with its runs, its verifications and its cost.

    `benchmark` is for a submission that is not stored. `costs` saves reading the price book again.
    """
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
        pending_decisions=[item.id for item in pending_verifications(submission)],
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
    """View of a submission as the session changed it."""
    session.flush()
    session.refresh(submission)
    return submission_view(session, submission)


def package_view(
    package: TrainingPackage, *, with_files: bool, with_factors: bool | None = None
) -> PackageView:
    """View of code, with the names of its files and the words of its factors or without."""
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
# Two machines' last digits may differ. A figure that anybody reads does not.
RELATIVE_TOLERANCE = 1e-9


def changed_figures(
    judged: Sequence[Mapping[str, Any]], now: Sequence[RunScore]
) -> list[ChangedFigure]:
    """The figures of runs, by file, that differ from the figures a verdict was reached on."""
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
