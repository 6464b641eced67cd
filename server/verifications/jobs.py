"""Queue a job: plan and seal its trainings, set time limits, queue a first attempt."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.scoring.latency import FEWEST_ITEMS
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.calibration import judged_beside
from finishline.rules.verification.control_points import band_for, precision_of
from finishline.rules.verification.job import Draw, Purpose, Request, beside_of, seal
from finishline.rules.verification.messages import (
    PACKAGE_PREFIX,
    ControlPoint,
    LatencyOrder,
    ReplayJob,
    TargetSpec,
    Training,
)
from finishline.rules.verification.purposes import CROSS_CHECK
from server.base.database import utc_now
from server.base.errors import ContentError
from server.base.events import DispatchWakeup, wake_after_commit
from server.base.models import Attempt, JobTraining, Submission, Verification
from server.base.standing import claim_of, measures, run_limit_seconds
from server.benchmarks.calibrations import adopted_calibration, benchmark_of, judging_benchmark
from server.benchmarks.definitions import definition
from server.verifications.states import Event, move

RUN_START_SECONDS = 60.0  # Allowance of a run beside its limit: starting, loading, stopping.


def draw_of_trainings(trainings: Sequence[Training], nonce: str) -> Draw:
    """The seeds of planned trainings with the nonce that they follow from."""
    return Draw(tuple(training.seed for training in trainings), nonce)


def why_over_limit(attempt: Attempt, *, now: datetime) -> str | None:
    """Reason to end a running attempt that is over a limit; None while it is in time.

    The whole attempt has its verification's limit. The current run has the benchmark's, counted
    from its announcement, so that a hung training ends although its worker keeps posting.
    """
    if attempt.started_at is None:
        return None
    limit_seconds = attempt.verification.limit_seconds
    if now > attempt.started_at + timedelta(seconds=limit_seconds):
        return f"the replay took longer than {limit_seconds:.0f} s"
    run_seconds = _run_seconds(attempt)
    since = attempt.run_started_at or attempt.started_at
    if now > since + timedelta(seconds=run_seconds):
        return f"a run took longer than {run_seconds:.0f} s and its worker did not end it"
    return None


def _run_seconds(attempt: Attempt) -> float:
    """Seconds that one run may take on the server's clock: all runs have the same limit."""
    return attempt.verification.limit_seconds / attempt.verification.runs


@dataclass(frozen=True)
class Order:
    """Job to queue: its purpose and request, the requester, and the rows that it is about."""

    purpose: Purpose
    request: Request
    requested_by: int
    reason: str | None
    submission: Submission | None = None
    against: Submission | None = None
    calibration_id: str | None = None
    sealed: Mapping[str, Any] = field(default_factory=dict)
    checks: Verification | None = None


def new_id() -> str:
    """A short random id for a URL: 60 bits."""
    return secrets.token_hex(8)[:15]


def order_about(
    session: Session,
    submission: Submission,
    *,
    purpose: Purpose,
    wishes: Mapping[str, Any],
    requested_by: int,
    reason: str | None,
) -> Order:
    """Order about one submission. Evidence is judged by the calibration of its precision."""
    precision = _precision_of(session, submission)
    adopted = adopted_calibration(session, submission.benchmark_sha256, precision)
    if precision is not None and purpose.is_replay and adopted is None:
        raise ContentError(_why_uncalibrated(submission.benchmark_id, precision))
    judged_by = adopted.id if adopted is not None and purpose.is_replay else None
    benchmark = judging_benchmark(session, submission.benchmark_sha256, judged_by)
    sealed: dict[str, Any] = {} if judged_by is None else judged_beside(judged_by, benchmark)
    return Order(
        purpose,
        Request(
            benchmark,
            secrets.token_bytes(32),
            claims=[claim_of(submission)],
            wishes=wishes,
        ),
        requested_by=requested_by,
        reason=reason,
        submission=submission,
        calibration_id=judged_by,
        sealed=sealed,
    )


def _precision_of(session: Session, submission: Submission) -> PrecisionName | None:
    return precision_of(definition(session, submission.benchmark_sha256), claim_of(submission))


def is_uncalibrated(session: Session, submission: Submission) -> bool:
    """Whether nobody has calibrated the reference in the precision that a submission states."""
    precision, sha256 = _precision_of(session, submission), submission.benchmark_sha256
    return precision is not None and adopted_calibration(session, sha256, precision) is None


def _why_uncalibrated(benchmark_id: str, precision: str) -> str:
    return (
        f"The reference of {benchmark_id} is not calibrated in {precision}, which trains along "
        f"another curve. An organiser calibrates it with `finishline benchmark calibrate "
        f"{benchmark_id} --precision {precision} --batch-sizes N --runs 20` and adopts that."
    )


def queue_job(session: Session, order: Order) -> Verification:
    """Plan the trainings, seal them, and queue a first attempt.

    Every run may take as long as the benchmark allows, plus the time to start.
    """
    benchmark, purpose = order.request.benchmark, order.purpose
    trainings = purpose.plan(order.request)
    in_box = any(training.in_box for training in trainings)
    policy = benchmark.trainings if in_box else benchmark.replay
    if policy is None:
        raise ValueError(f"{benchmark.benchmark_id} has no policy for {purpose.name}")
    drawn = draw_of_trainings(trainings, order.request.entropy.hex())
    submission_id = order.submission.id if order.submission is not None else None
    band = []
    if purpose.is_replay:
        band = band_for(benchmark, order.request.claims[0], runs=len(trainings))
    verification = Verification(
        id=new_id(),
        kind=purpose.name,
        submission=order.submission,
        against=order.against,
        calibration_id=order.calibration_id,
        benchmark_sha256=benchmark.sha256,
        requested_by=order.requested_by,
        reason=order.reason,
        seal=seal(
            benchmark,
            submission_id,
            drawn,
            beside=beside_of(purpose, trainings, order.sealed),
        ),
        nonce=drawn.nonce,
        runs=len(trainings),
        trainings=[_row(index, training) for index, training in enumerate(trainings)],
        control_points=[asdict(point) for point in band],
        max_attempts=policy.max_attempts,
        lease_seconds=policy.lease_seconds,
        limit_seconds=len(trainings)
        * (run_limit_seconds(benchmark, trainings) + RUN_START_SECONDS),
        reasons=[],
        checks_id=order.checks.id if order.checks is not None else None,
        created_at=utc_now(),
    )
    queue_attempt(session, verification, "request")
    return verification


def _row(index: int, training: Training) -> JobTraining:
    return JobTraining(index=index, **asdict(training) | {"measure": list(training.measure)})


def trainings_of(verification: Verification) -> list[Training]:
    """Planned trainings of a job."""
    return [
        Training(
            package=row.package,
            settings=row.settings,
            seed=row.seed,
            data_nonce=row.data_nonce,
            stop_at="end" if row.stop_at == "end" else "target",
            measure=tuple(row.measure),
            precision=cast(PrecisionName | None, row.precision),
        )
        for row in verification.trainings
    ]


def build_job(
    benchmark: Benchmark,
    claim: Claim | None,
    trainings: Sequence[Training],
    *,
    attempt_id: str,
    verification_id: str,
    submission_id: str | None,
    purpose: str = "replay",
    control_points: Sequence[ControlPoint] = (),
) -> ReplayJob:
    """The job as a worker gets it with its lease.

    Settings are completed by the reference's own. Without a claim its division is the benchmark's
    first. Raises RuleError if a latency is to be measured and the benchmark has no protocol.
    """
    target, defaults, protocol = benchmark.target, benchmark.defaults(), benchmark.latency
    order = None
    if measures(trainings, "latency"):
        if protocol is None:
            raise RuleError(
                "no latency protocol", file=benchmark.benchmark_id, expected="[latency]"
            )
        order = LatencyOrder(
            items=protocol.items,
            warmup_items=protocol.warmup_items,
            output_tolerance=protocol.output_tolerance,
            fewest_items=FEWEST_ITEMS,
            enough_seconds=protocol.enough_seconds,
            most_seconds=protocol.most_seconds,
        )
    return ReplayJob(
        attempt_id=attempt_id,
        verification_id=verification_id,
        submission_id=submission_id,
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        data_set_sha256=benchmark.data_set.sha256,
        trainings=[
            each if each.in_box else replace(each, settings=dict(defaults) | each.settings)
            for each in trainings
        ],
        target=TargetSpec(
            metric=target.metric,
            value=target.value,
            direction=target.direction,
            evaluations_in_a_row=benchmark.reach.evaluations,
            fixed_stop=benchmark.reach.name == "fixed_stop",
        ),
        clock=benchmark.clock.name,
        division=claim.division if claim is not None else benchmark.divisions[0],
        control_points=list(control_points),
        run_limit_seconds=run_limit_seconds(benchmark, trainings),
        purpose=purpose,
        latency=order,
    )


def job_of(session: Session, attempt: Attempt) -> ReplayJob:
    """The job of an attempt, for the worker with its lease."""
    verification = attempt.verification
    submission = verification.submission
    return build_job(
        benchmark_of(session, verification),
        claim_of(submission) if submission is not None else None,
        trainings_of(verification),
        attempt_id=attempt.id,
        verification_id=verification.id,
        submission_id=verification.submission_id,
        purpose=verification.kind,
        control_points=[ControlPoint(**point) for point in verification.control_points],
    )


def trains_packages(verification: Verification) -> bool:
    """Whether a job trains packages, in a box."""
    return any(row.package.startswith(PACKAGE_PREFIX) for row in verification.trainings)


def queue_attempt(session: Session, verification: Verification, event: Event) -> None:
    """Queue an attempt, whose worker is drawn after the commit. A retry keeps its place."""
    now = utc_now()
    submission = verification.submission
    asker = verification.requested_by
    submitter = submission.user_id if submission is not None else asker
    attempt = Attempt(
        id=new_id(),
        verification=verification,
        number=len(verification.attempts) + 1,
        fence=0,
        send_after=now,
        created_at=now,
        hardware_class=submission.system["hardware_class"] if submission is not None else None,
        submitter_id=submitter,
        by_organiser=submission is None or submitter != asker,
        asked_at=verification.created_at,
        is_apart=verification.kind == CROSS_CHECK.name,
    )
    move(session, attempt, "request")
    move(session, verification, event)
    session.flush()
    wake_after_commit(session, DispatchWakeup)
