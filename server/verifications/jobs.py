"""Jobs: plan and seal their trainings, queue their attempts, and move them from state to state.

Only `move` writes the state of a verification or of an attempt, by the tables below.

A withdrawal cancels queued jobs and head-to-heads. Runs that wait for their rerun count, or an
unlucky submission would be withdrawn and submitted again. A verification that one owner contradicts
stays checking, and a third owner is drawn.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import ColumnElement, update
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.latency import FEWEST_ITEMS
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.calibration import judged_beside
from finishline.rules.verification.control_points import band_for, precision_of
from finishline.rules.verification.job import Draw, Purpose, Request, beside_of, seal, target_spec
from finishline.rules.verification.messages import (
    PACKAGE_PREFIX,
    ControlPoint,
    Failure,
    FailureCode,
    LatencyOrder,
    ReplayJob,
    Training,
)
from finishline.rules.verification.purposes import CALIBRATION, CROSS_CHECK
from finishline.rules.verification.verdict import Reason, Verdict
from server.base.database import find_row, utc_now
from server.base.errors import ConflictError, ContentError
from server.base.events import (
    DispatchWakeup,
    VerificationChanged,
    VerificationMoment,
    emit,
    wake_after_commit,
)
from server.base.models import Attempt, Calibration, JobTraining, Submission, Verification
from server.base.standing import ENDED, OPEN, claim_of, measures, purpose_of, run_limit_seconds
from server.benchmarks.calibrations import chunks_of, has_every_run
from server.benchmarks.definitions import (
    adopted_calibration,
    benchmark_of,
    definition,
    judging_benchmark,
)
from server.submissions.rows import new_id

Event = Literal[
    "request", "lease", "retry", "report", "check", "conclude", "refute", "fail", "lose", "expire",
    "cancel",
]  # fmt: skip
# The states after an event in an earlier state.
Table = Mapping[tuple[str | None, Event], str]
EVIDENCE: Table = {
    (None, "request"): "queued",  # By a person, a policy, or a board that is settled.
    ("queued", "lease"): "running",
    ("running", "retry"): "queued",  # A lost worker or a refused report, while attempts are left.
    ("running", "report"): "done",
    ("running", "check"): "checking",  # The report, if an independent rerun was drawn.
    ("checking", "conclude"): "done",  # The rerun, or ten minutes of waiting for a worker.
    ("checking", "refute"): "queued",  # Two owners contradict the worker, which is paused.
    ("running", "fail"): "failed",  # By the report, a limit of time, or the last lost attempt.
    ("queued", "expire"): "failed",  # Seven days of waiting for a worker.
    ("queued", "cancel"): "cancelled",  # By an organiser.
    ("checking", "cancel"): "cancelled",
}
# Comparisons and calibrations.
OTHERS: Table = {**EVIDENCE, ("running", "cancel"): "cancelled"}
ATTEMPTS: Table = {
    (None, "request"): "queued",
    ("queued", "lease"): "running",  # By the worker that was drawn.
    ("running", "report"): "done",
    ("running", "fail"): "failed",  # By the report or a limit of time.
    ("running", "lose"): "lost",  # Its lease ran out.
    ("done", "refute"): "lost",  # Two other owners contradict it.
    ("queued", "expire"): "cancelled",  # It waited too long for a worker.
    ("queued", "cancel"): "cancelled",
    ("running", "cancel"): "cancelled",
}
MOMENTS: dict[str, VerificationMoment] = {
    "queued": "queued",
    "running": "started",
    "done": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}
HINTS = {
    "lease": "Leave it.",
    "report": "Stop this replay.",
    "fail": "Stop this replay.",
    "cancel": "A replay that runs ends by itself. Withdraw the submission to hide it.",
}


class StateError(ConflictError):
    """An event has to start from another state."""


def move(
    session: Session,
    row: Verification | Attempt,
    event: Event,
    *conditions: ColumnElement[bool],
    **changes: Any,
) -> None:
    """Move a verification or an attempt, with other columns that change with its state.

    One UPDATE decides: the later of two transactions gets a StateError. So does an event outside
    the table, or an event with unmet `conditions`. A new row is added.
    """
    table = _table_of(row)
    before, after = row.state, table.get((row.state, event))
    if after is None:
        raise _refusal(row, event)
    if before in OPEN and after not in OPEN:
        changes["ended_at"] = utc_now()
    if before is None:
        row.state = after
        session.add(row)
    else:
        kind: Any = type(row)
        moved = session.execute(
            update(kind)
            .where(kind.id == row.id, kind.state == before, *conditions)
            .values(state=after, **changes)
            .returning(kind.id)
            .execution_options(synchronize_session="fetch")
        ).first()
        if moved is None:
            session.refresh(row, ["state"])
            raise _refusal(row, event)
    if isinstance(row, Attempt) or after == "checking":
        return
    if after == "cancelled":
        for attempt in row.attempts:
            if attempt.state in OPEN:
                move(session, attempt, "cancel")
    latest = row.attempts[-1] if after in OPEN else None
    emit(session, VerificationChanged(row, MOMENTS[after], latest))


def end(
    session: Session,
    verification: Verification,
    event: Event,
    verdict: Verdict | None = None,
    *,
    why: Reason | None = None,
) -> None:
    """End a verification with a verdict, or a calibration without one. `why` leaves it open."""
    verdict = verdict or Verdict("inconclusive", ())
    outcome = "inconclusive" if why is not None else verdict.outcome
    reasons = [asdict(each) for each in (*verdict.reasons, why) if each is not None]
    is_about_claim = verification.submission is not None
    move(session, verification, event, outcome=outcome if is_about_claim else None, reasons=reasons)


def settle_calibration(session: Session, event: VerificationChanged) -> None:
    """End a calibration when its last chunk under way has ended."""
    verification = event.verification
    if verification.kind != CALIBRATION.name or verification.calibration_id is None:
        return
    if event.moment not in ENDED:
        return
    session.flush()
    calibration = find_row(session, Calibration, verification.calibration_id)
    if any(chunk.state in OPEN for chunk in chunks_of(session, calibration.id)):
        return
    calibration.state = "done" if has_every_run(session, calibration) else "incomplete"
    calibration.ended_at = utc_now()


def _table_of(row: Verification | Attempt) -> Table:
    if isinstance(row, Attempt):
        return ATTEMPTS
    return EVIDENCE if purpose_of(row).track == "evidence" else OTHERS


def _refusal(row: Verification | Attempt, event: Event) -> StateError:
    wanted = [source or "new" for source, name in _table_of(row) if name == event]
    detail = f"{type(row).__name__} {row.id} is {row.state}. To {event} it, it has to be "
    return StateError(f"{detail}{' or '.join(wanted)}.", hint=HINTS.get(event))


def repeated(code: FailureCode, message: str) -> Failure:
    """Make the failure of an attempt that the infrastructure failed, so that it is repeated."""
    hint = "nothing to do: another attempt is queued"
    return Failure(kind="infrastructure", code=code, message=message, next_step=hint)


RUN_START_SECONDS = 60.0  # Added to a run's limit, for starting, loading and stopping.


def why_over_limit(attempt: Attempt, *, now: datetime) -> str | None:
    """Say why to end a running attempt. A run's limit ends a hung training that still posts."""
    if attempt.started_at is None:
        return None
    limit_seconds = attempt.verification.limit_seconds
    run_seconds = limit_seconds / attempt.verification.runs  # All runs have the same limit.
    if now > attempt.started_at + timedelta(seconds=limit_seconds):
        return f"the replay took longer than {limit_seconds:.0f} s"
    since = attempt.run_started_at or attempt.started_at
    if now > since + timedelta(seconds=run_seconds):
        return f"a run took longer than {run_seconds:.0f} s and its worker did not end it"
    return None


@dataclass(frozen=True)
class Order:
    """Job to queue: who asks for it and why, its rows, and the accelerator seconds `reserved`."""

    purpose: Purpose
    requested_by: int
    reason: str | None
    submission: Submission | None = None
    against: Submission | None = None
    checks: Verification | None = None
    continues: Verification | None = None
    calibration: Calibration | None = None
    wishes: Mapping[str, Any] = field(default_factory=dict)
    reserved: float | None = None

    @property
    def claims(self) -> list[Claim]:
        """Claims of its submissions, the challenger's first."""
        return [claim_of(side) for side in (self.submission, self.against) if side is not None]


def judging(session: Session, order: Order) -> tuple[Benchmark, str | None]:
    """Return the judging definition and its calibration's id. Raises UncalibratedError."""
    if order.calibration is not None:
        return definition(session, order.calibration.benchmark_sha256), order.calibration.id
    about = order.checks or order.submission
    if about is None:
        raise ValueError(f"a {order.purpose.name} is about a submission or a calibration")
    submission, sha256 = order.submission, about.benchmark_sha256
    if submission is None or not order.purpose.is_replay:
        return definition(session, sha256), None
    precision = precision_of(definition(session, sha256), order.claims[0])
    adopted = adopted_calibration(session, sha256, precision)
    if precision is not None and adopted is None:
        name = submission.benchmark_id
        raise UncalibratedError(
            f"The reference of {name} is not calibrated in {precision}, which trains along "
            f"another curve. An organiser calibrates it with `finishline benchmark calibrate "
            f"{name} --precision {precision} --batch-sizes N --runs 20` and adopts that."
        )
    judged_by = None if adopted is None else adopted.id
    return judging_benchmark(session, sha256, judged_by), judged_by


class UncalibratedError(ContentError):
    """The reference lacks a calibration in the submission's precision."""


def queue_job(session: Session, order: Order) -> Verification:
    """Plan the trainings, seal them, and queue a first attempt."""
    purpose, claims = order.purpose, order.claims
    benchmark, calibration_id = judging(session, order)
    nonce = secrets.token_bytes(32)
    trainings = purpose.plan(Request(benchmark, nonce, claims=claims, wishes=order.wishes))
    in_box = any(training.in_box for training in trainings)
    policy = benchmark.trainings if in_box else benchmark.replay
    if policy is None:
        raise ValueError(f"{benchmark.benchmark_id} has no policy for {purpose.name}")
    band = band_for(benchmark, claims[0], runs=len(trainings)) if purpose.is_replay else []
    verification = Verification(
        id=new_id(),
        kind=purpose.name,
        submission=order.submission,
        against=order.against,
        calibration_id=calibration_id,
        benchmark_sha256=benchmark.sha256,
        requested_by=order.requested_by,
        reason=order.reason,
        nonce=nonce.hex(),
        runs=len(trainings),
        trainings=[
            JobTraining(index=index, **asdict(training) | {"measure": list(training.measure)})
            for index, training in enumerate(trainings)
        ],
        control_points=[asdict(point) for point in band],
        max_attempts=policy.max_attempts,
        lease_seconds=policy.lease_seconds,
        limit_seconds=len(trainings)
        * (run_limit_seconds(benchmark, trainings) + RUN_START_SECONDS),
        reasons=[],
        checks_id=order.checks.id if order.checks is not None else None,
        continues=order.continues,
        gpu_seconds_reserved=order.reserved,
        created_at=utc_now(),
    )
    verification.seal = seal(
        benchmark,
        order.submission.id if order.submission is not None else None,
        Draw(tuple(training.seed for training in trainings), nonce.hex()),
        beside=sealed_with(verification, benchmark, trainings),
    )
    queue_attempt(session, verification, "request")
    return verification


def sealed_with(
    verification: Verification, benchmark: Benchmark, trainings: Sequence[Training]
) -> dict[str, Any]:
    """Collect the facts sealed with a job's draw."""
    purpose, calibration_id = purpose_of(verification), verification.calibration_id
    sealed: dict[str, Any] = {}
    if calibration_id is not None:
        sealed |= {"calibration": calibration_id}
        if purpose.is_replay:
            sealed = judged_beside(calibration_id, benchmark)
    if verification.against is not None:
        sealed["against"] = verification.against.id
    if verification.checks_id is not None:
        sealed["checks"] = verification.checks_id
    return beside_of(purpose, trainings, sealed)


def trainings_of(verification: Verification) -> list[Training]:
    """Return the planned trainings of a job."""
    names = [each.name for each in fields(Training)]
    return [
        Training(**{name: getattr(row, name) for name in names} | {"measure": tuple(row.measure)})
        for row in verification.trainings
    ]


def job_of(session: Session, attempt: Attempt) -> ReplayJob:
    """Build an attempt's job for its worker. The reference's settings complete a submission's."""
    verification, submission = attempt.verification, attempt.verification.submission
    benchmark, trainings = benchmark_of(session, verification), trainings_of(verification)
    defaults, protocol = benchmark.defaults(), benchmark.latency
    latency = None
    if protocol is not None and measures(trainings, "latency"):
        latency = LatencyOrder(
            items=protocol.items,
            warmup_items=protocol.warmup_items,
            output_tolerance=protocol.output_tolerance,
            fewest_items=FEWEST_ITEMS,
            enough_seconds=protocol.enough_seconds,
            most_seconds=protocol.most_seconds,
        )
    return ReplayJob(
        attempt_id=attempt.id,
        verification_id=verification.id,
        submission_id=verification.submission_id,
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        data_set_sha256=benchmark.data_set.sha256,
        trainings=[
            each if each.in_box else replace(each, settings=dict(defaults) | each.settings)
            for each in trainings
        ],
        target=target_spec(benchmark),
        clock=benchmark.clock.name,
        division=benchmark.divisions[0] if submission is None else submission.division,
        control_points=[ControlPoint(**point) for point in verification.control_points],
        run_limit_seconds=run_limit_seconds(benchmark, trainings),
        purpose=verification.kind,
        latency=latency,
    )


def trains_packages(verification: Verification) -> bool:
    """Check whether a job trains code submissions, in a sandbox."""
    return any(row.package.startswith(PACKAGE_PREFIX) for row in verification.trainings)


def queue_attempt(session: Session, verification: Verification, event: Event) -> None:
    """Queue an attempt. A worker is drawn after the commit. A retry keeps its place."""
    now, submission, asker = utc_now(), verification.submission, verification.requested_by
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
