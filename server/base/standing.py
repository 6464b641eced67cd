"""A submission's configuration, verifications and published verdict, and estimates of a job."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, cast

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload, selectinload, undefer

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.measurements import PrecisionName
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.statistics.aggregate import mean
from finishline.rules.submissions.claim import Claim, Cloud, System, TrainedWith, trained_settings
from finishline.rules.verification.control_points import is_calibrated
from finishline.rules.verification.job import Purpose, Request
from finishline.rules.verification.messages import ReplayReport, Training
from finishline.rules.verification.purposes import PURPOSES
from server.base.database import find_row
from server.base.errors import ConflictError
from server.base.models import Submission, Verification

PUBLISH: Final = "publish"
KEEP: Final = "keep"
# A training is replayed, a package measured, and an inference has its latency measured.
KIND_THAT_CHECKS = {each.checks_claims: name for name, each in PURPOSES.items()}
DecisionWord = Literal["publish", "keep", "pending"]
Status = Literal["claimed", "verifying", "verified", "rejected", "inconclusive"]


def purpose_of(verification: Verification) -> Purpose:
    """Return the purpose of a verification."""
    return PURPOSES[verification.kind]


def report_of(verification: Verification) -> ReplayReport | None:
    """Parse the report of a verification, if it has one."""
    stored = verification.report
    return None if stored is None else REPORT.validate_python(stored)


def checks_claim(verification: Verification, submission: Submission) -> bool:
    """Return whether a submission's status follows this verification."""
    return verification.kind == kind_that_checks(submission)


def kind_that_checks(submission: Submission) -> str:
    """Return the kind of verification behind a submission's status."""
    is_package = submission.trained_with == "package"
    return KIND_THAT_CHECKS["package" if is_package else submission.kind]


def published_verification(submission: Submission) -> Verification | None:
    """Find the verification behind a submission's status, published last."""
    published = [
        (verification.decided_at, verification.created_at, verification)
        for verification in submission.verifications
        if verification.decision == PUBLISH
    ]
    return max(published, key=lambda found: found[:2])[2] if published else None


def is_published(verification: Verification) -> bool:
    """Return whether a submission's status rests on this verification."""
    submission = verification.submission
    return submission is not None and published_verification(submission) is verification


def is_pending(verification: Verification, submission: Submission | None) -> bool:
    """Return whether a verification's verdict awaits a review."""
    judged = verification.state == "done" and verification.decision is None
    return judged and submission is not None and checks_claim(verification, submission)


def decision_word(verification: Verification, submission: Submission | None) -> DecisionWord | None:
    """Return publish, keep or pending, if a verification has a verdict."""
    if verification.decision is not None:
        return verification.decision
    return "pending" if is_pending(verification, submission) else None


def require_submission(verification: Verification) -> Submission:
    """Return the submission of a verdict. Raises ConflictError for other verifications."""
    submission = verification.submission
    if submission is None or not checks_claim(verification, submission):
        raise ConflictError(
            f"Verification {verification.id} is a {verification.kind}: it has no verdict to decide."
        )
    return submission


def require_pending(verification: Verification) -> None:
    """Raise ConflictError unless a verification awaits a review."""
    if verification.state != "done":
        raise ConflictError(
            f"Verification {verification.id} is {verification.state}: it has no verdict to decide."
        )
    if verification.decision is not None:
        raise ConflictError(
            f"It was decided to {verification.decision} verification {verification.id} "
            f"({verification.decision_reason}); request another verification."
        )


def row_evidence(submission: Submission) -> dict[str, Any]:
    """Return the evidence of a submission's row."""
    return {
        "evidence": submission.evidence,
        "check": submission.check_word,
        "trained_with": submission.trained_with,
    }


def publication(submission: Submission) -> dict[str, Any]:
    """Return a submission's published facts for the audit log."""
    found = published_verification(submission)
    return {
        "status": submission.status,
        "verification": found.id if found is not None else None,
    }


OPEN = ("queued", "running", "checking")
ENDED = ("done", "failed", "cancelled")


REPORT = TypeAdapter(ReplayReport)


# Columns of a view, loaded at once. A submission is read without them.
IN_SHORT = (
    undefer(Verification.reasons),
    selectinload(Verification.attempts),
    selectinload(Verification.trainings),
)
SHOWN = (undefer(Verification.control_points), *IN_SHORT)
# Lists show the submissions too, and the packages decide who reads the output of their runs.
LISTED = (
    *IN_SHORT,
    selectinload(Verification.submission).options(
        selectinload(Submission.verifications), joinedload(Submission.package)
    ),
)


def find_verification(session: Session, verification_id: str) -> Verification:
    """Find a verification by id. Raises NotFoundError."""
    return find_row(session, Verification, verification_id, options=SHOWN)


def verification_under_way(
    session: Session, submission_id: str, *, kind: str | None = None
) -> str | None:
    """Find the id of a submission's unfinished verification, of one kind or any."""
    query = select(Verification.id).where(
        Verification.submission_id == submission_id, Verification.state.in_(OPEN)
    )
    return session.scalar(query if kind is None else query.where(Verification.kind == kind))


def reference_model(benchmark: Benchmark, settings: Mapping[str, float]) -> str:
    """Name a benchmark's reference in some settings: "Digits reference, batch size 32"."""
    defaults = benchmark.defaults()
    changed = [
        f"{name.replace('_', ' ')} {value:g}"
        for name, value in settings.items()
        if value != defaults.get(name)
    ]
    return ", ".join([f"{benchmark.title} reference", *changed])


def claim_of(submission: Submission) -> Claim:
    """Rebuild the claim of a stored submission."""
    published = submission.published
    package = submission.trained_package
    return Claim(
        benchmark_id=submission.benchmark_id,
        division=submission.division,
        model=submission.claimed_model or submission.model,
        framework=submission.claimed_framework or submission.framework,
        system=stored_system(submission.system),
        run_files=tuple(run.file for run in submission.runs),
        hyperparameters=submission.hyperparameters,
        code_url=submission.code_url,
        notes=submission.notes,
        dawnbench=submission.dawnbench,
        organisation=published.organisation if published is not None else None,
        submitted_on=submission.published_on,
        kind="inference" if submission.kind == "inference" else "train",
        precision=cast(PrecisionName | None, submission.precision),
        trained_with=cast(TrainedWith, submission.trained_with),
        package=submission.claim_sha256 if package is not None else None,
        deterministic=package is not None and bool(package.manifest["deterministic"]),
        factors=tuple(package.manifest.get("factors") or ()) if package is not None else (),
    )


def claimed_runs(submission: Submission) -> list[RunScore]:
    """Return the scores of a stored submission's runs."""
    return [
        RunScore(
            file=run.file,
            seed=run.seed,
            reached=run.reached,
            tta_seconds=run.tta_seconds,
            epochs_to_target=run.epochs_to_target,
            best_quality=run.best_quality,
            evaluation_interval_seconds=None,
        )
        for run in submission.runs
    ]


def stored_system(table: Mapping[str, Any]) -> System:
    """Build a system from the JSON of its fields. Fields with a default may be missing."""
    cloud = table.get("cloud")
    return System(**{**table, "cloud": Cloud(**cloud) if cloud is not None else None})


def names_where(fact: Callable[[Purpose], bool]) -> tuple[str, ...]:
    """Name the purposes with this property, for a query."""
    return tuple(name for name, purpose in PURPOSES.items() if fact(purpose))


def measures(trainings: Sequence[Training], figure: str) -> bool:
    """Return whether any training takes a figure."""
    return any(figure in training.measure for training in trainings)


def run_limit_seconds(benchmark: Benchmark, trainings: Sequence[Training]) -> float:
    """Return the most seconds of one run, with its preparation or its latency's measurement."""
    policy = benchmark.trainings
    if policy is not None and any(training.in_box for training in trainings):
        return policy.run_limit_seconds + 3 * policy.prepare_seconds  # Off the clock.
    training = benchmark.replay.run_limit_seconds if benchmark.replay is not None else 0.0
    measuring = benchmark.latency.limit_seconds if benchmark.latency is not None else 0.0
    return training + measuring if measures(trainings, "latency") else training


Basis = Literal["replays of the submission", "replays of the benchmark", "run limit"]
LATEST = 20


@dataclass(frozen=True)
class Expected:
    """Expected runs of a verification, their total seconds on one worker, its accelerators."""

    runs: float
    seconds: float
    accelerators: int
    basis: Basis


class Estimator:
    """Estimates verifications of a kind. The request's `wishes` change the number of runs."""

    def __init__(
        self, session: Session, kind: str = "replay", wishes: Mapping[str, int] | None = None
    ) -> None:
        self._session = session
        self._kind = kind
        self._wishes = wishes or {}
        self._past = cache(self._read_past)

    def estimate(self, submission: Submission, benchmark: Benchmark) -> Expected:
        """Estimate by replays of the submission, else of its benchmark, else by a run's limit."""
        claim = claim_of(submission)
        sample = Request(benchmark, bytes(32), claims=[claim], wishes=self._wishes)
        trainings = PURPOSES[self._kind].plan(sample)
        runs = float(len(trainings))
        if PURPOSES[self._kind].is_replay:
            drawn = benchmark.replay
            both = 0.0 if drawn is None else drawn.min_runs + drawn.max_runs
            runs = both / 2 if is_calibrated(benchmark, claim) else both
        sources: tuple[tuple[Basis, Any, str], ...] = (
            ("replays of the submission", Verification.submission_id, submission.id),
            ("replays of the benchmark", Submission.benchmark_id, submission.benchmark_id),
        )
        for basis, column, value in sources:
            past = self._past(column, value)
            if past is not None:
                return Expected(runs, runs * past[0], past[1], basis)
        accelerators = int(submission.system.get("accelerator_count") or 0)
        seconds = runs * run_limit_seconds(benchmark, trainings)
        return Expected(runs, seconds, accelerators, "run limit")

    def _read_past(self, column: Any, value: str) -> tuple[float, int] | None:
        """Read the mean seconds per run and the accelerators of earlier verifications like this."""
        alike: tuple[str, ...] = (self._kind,)
        if PURPOSES[self._kind].in_box:  # Submitted code trains alike for all these purposes.
            alike = names_where(lambda purpose: purpose.in_box)
        reports = self._session.scalars(
            select(Verification.report)
            .join(Submission, Submission.id == Verification.submission_id)
            .where(column == value, Verification.kind.in_(alike))
            .where(Verification.state == "done", Verification.report.is_not(None))
            .order_by(Verification.created_at.desc())
            .limit(LATEST)
        ).all()
        seconds = [sum(run["ledger"].values()) for each in reports for run in each["runs"]]
        if not seconds:
            return None
        return mean(seconds), int(reports[0]["system"]["accelerator_count"])


def configuration_of(
    benchmark: Benchmark,
    claim: Claim,
    *,
    environment: str | None = None,
    program: str | None = None,
) -> dict[str, Any]:
    """Return a claim's configuration. However claims write them, equal ones have one hash.

    `settings` are the settings to train, with the reference's defaults. A code submission has
    `code` instead: the hashes of its `program` and its `environment`, and the files and limits of
    its benchmark.
    """
    settings = benchmark.defaults() | trained_settings(benchmark, claim)
    configuration: dict[str, Any] = {
        "benchmark": benchmark.benchmark_id,
        "division": claim.division,
        "hardware_class": claim.system.hardware_class,
        "settings": {name: float(value) for name, value in settings.items()},
    }
    policy, replay = benchmark.trainings, benchmark.replay
    if claim.package is not None and policy is not None:
        code = {
            "program": program or claim.package,
            "environment": environment,
            "files": dict(policy.files),
            "limits": [policy.threads, policy.max_evaluations, policy.prepare_seconds],
        }
        return configuration | {"settings": {}, "code": code}
    precision = replay.told(claim.precision) if replay is not None else None
    return configuration if precision is None else configuration | {"precision": precision}
