"""Judge a report by its purpose, and store the verdict with its consequences.

A finished replay is believed after another owner's worker has trained a drawn run again.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.canonical import sha256_of
from finishline.rules.ranking import CHECK_OF_STATUS
from finishline.rules.run import evaluation_of
from finishline.rules.verification.cross_check import agree
from finishline.rules.verification.job import Case
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.purposes import CROSS_CHECK
from finishline.rules.verification.replay import is_excused
from finishline.rules.verification.verdict import Reason, Verdict
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.errors import ServerError
from server.base.events import DuplicateMarked, VerificationChanged
from server.base.fleet import Fleet
from server.base.models import Attempt, Submission, Verification
from server.base.standing import (
    ENDED,
    KEEP,
    OPEN,
    PUBLISH,
    checks_claim,
    claim_of,
    claimed_runs,
    is_published,
    measures,
    names_where,
    published_verification,
    purpose_of,
    report_of,
    verification_under_way,
)
from server.benchmarks.definitions import benchmark_of, definition
from server.submissions.rows import runs_with_curves
from server.submissions.standing_changes import replace_original
from server.verifications.calibrations import keep_runs
from server.verifications.head_to_heads import contest_of, continue_head_to_head
from server.verifications.jobs import (
    Event,
    Order,
    end,
    move,
    queue_attempt,
    queue_job,
    repeated,
    trainings_of,
)
from server.verifications.pools import (
    follow_evidence,
    keep_measured_runs,
    take_out_runs,
    verdict_that_holds,
)
from server.verifications.queue import owners_at
from server.verifications.requests import queue_request
from server.verifications.views import energy_to_target_joules, measured_figures
from server.verifications.workers import is_organisers_worker, pause_by_server

DETERMINISM = {"repeat_equal": "shown", "repeat_differs": "struck"}
ORGANISERS_SHARE = 10  # One in so many runs of an organisers' worker is trained again.
NO_SECOND_WORKER = Reason(
    "no_second_worker",
    "leaves_open",
    "one worker's word alone: no quiet worker of another owner was there to train a run again",
)
NOT_SETTLED = Reason(
    "cross_check_differs",
    "leaves_open",
    "two workers differ about a run, and no third owner's worker decided between them",
)
OVERTAKEN = Reason(
    "infrastructure",
    "leaves_open",
    "the report that it checks was refused; its runs are made again",
)


def end_with_report(
    session: Session, verification: Verification, report: ReplayReport, verdict: Verdict | None
) -> None:
    """Store the verdict about a report, and its consequences by the track of the job."""
    verification.report, track = asdict(report), purpose_of(verification).track
    if is_overtaken(session, verification):
        end(session, verification, "fail", why=OVERTAKEN)
    elif verdict is None or track == "calibration":
        keep_runs(session, verification, report)
        end(session, verification, "report")
    elif verification.checks_id is not None:
        _end_cross_check(session, verification, report, verdict)
    elif track == "comparison":
        _end_comparison(session, verification, report, verdict)
    else:
        waits, why = _begin_cross_check(session, verification, report, verdict)
        if waits:
            move(session, verification, "check")
        else:
            _end_evidence(session, verification, report, verdict, why)


def verdict_of(
    session: Session,
    verification: Verification,
    report: ReplayReport,
    *,
    claimed_by: Submission | None = None,
) -> Verdict | None:
    """Judge a report by its purpose, about its submission or its duplicate `claimed_by`.

    None without a submission to judge, and if the checked report is gone. Raises RuleError unless
    the report fits the plan.
    """
    if is_overtaken(session, verification):
        return None
    submission, purpose = claimed_by or verification.submission, purpose_of(verification)
    checked = verification.checks_id
    case = Case(benchmark_of(session, verification), trainings_of(verification), report)
    if checked is not None:
        case = replace(case, checked=report_of(session.get_one(Verification, checked)))
    if submission is None:
        return purpose.judge(case)
    case = replace(
        case,
        claim=claim_of(submission),
        runs=claimed_runs(submission),
        curves=[
            [evaluation_of(row) for row in run.curve]
            for run in runs_with_curves(session, submission.id)
        ],
        latency_ms=submission.latency_ms,
        contest=None if verification.against_id is None else contest_of(session, verification),
    )
    return purpose.judge(case)


def _end_evidence(
    session: Session,
    verification: Verification,
    report: ReplayReport,
    verdict: Verdict,
    why: Reason | None,
    *,
    event: Event = "report",
) -> None:
    submission = verification.submission
    if submission is None:
        raise ValueError(f"verification {verification.id} is evidence without a submission")
    if report.precision is not None:
        submission.precision_measured = report.precision.lowest
    if why is None:  # Unconfirmed runs of one worker stay out of a shared pool.
        keep_measured_runs(session, verification, report)
    end(session, verification, event, verdict, why=why)
    _show_determinism(submission, verdict)


def _end_comparison(
    session: Session, verification: Verification, report: ReplayReport, verdict: Verdict
) -> None:
    if verification.against_id is None:
        end(session, verification, "report", verdict)
        return
    is_believed = is_organisers_worker(session, report.system.worker)
    end(session, verification, "report", verdict, why=None if is_believed else NO_SECOND_WORKER)
    continue_head_to_head(session, verification)


def drawn_runs(nonce: str, report: object, *, among: Sequence[int], organisers: bool) -> list[int]:
    """Draw the indexes of the runs to train again from the opened nonce and the report.

    One run of every report, or one in ten runs of an organisers' worker. Workers can't foresee the
    draw, because they don't know the nonce.
    """
    if not among:
        return []
    seed = bytes.fromhex(nonce) + bytes.fromhex(sha256_of(report))
    if not organisers:
        return [among[_number(seed, 0) % len(among)]]
    return [index for index in among if _number(seed, index) % ORGANISERS_SHARE == 0]


def _number(seed: bytes, index: int) -> int:
    digest = hashlib.sha256(b"finishline cross-check" + seed + index.to_bytes(4, "big")).digest()
    return int.from_bytes(digest[:8], "big")


def _begin_cross_check(
    session: Session,
    verification: Verification,
    report: ReplayReport,
    verdict: Verdict,
) -> tuple[bool, Reason | None]:
    """Queue the drawn reruns. Returns whether the verdict waits for them, and why it stays open.

    All rejected runs are trained again, unless an organisers' worker trained them. Only replays
    are repeated, so other jobs need an organisers' worker.
    """
    organisers = is_organisers_worker(session, report.system.worker)
    runs = report.runs if purpose_of(verification).is_replay else ()
    counted = [run.index for run in runs if not is_excused(run)]
    drawn = drawn_runs(verification.nonce, asdict(report), among=counted, organisers=organisers)
    if verdict.outcome == "rejected" and not organisers:
        drawn = counted
    if not drawn or not has_other_owner(session, verification, report.system.hardware_class):
        return False, None if organisers else NO_SECOND_WORKER
    for index in drawn:
        _queue(session, verification, report, index)
    return not organisers, None


def has_other_owner(
    session: Session,
    verification: Verification,
    hardware_class: str,
    *,
    seeds: Sequence[int] = (),
) -> bool:
    """Check whether another owner's worker of the class, not held, could make a rerun."""
    session.flush()
    barred = owners_at(session, verification.id, seeds=seeds)
    return any(
        worker.hardware_class == hardware_class and not worker.held and worker.user_id not in barred
        for worker in Fleet.read(session).fit
    )


def _queue(session: Session, verification: Verification, report: ReplayReport, index: int) -> None:
    order = Order(
        CROSS_CHECK,
        verification.requested_by,
        f"run {index} of verification {verification.id}",
        submission=verification.submission,
        checks=verification,
        wishes={"seed": report.runs[index].seed},
    )
    check = queue_job(session, order)
    for attempt in check.attempts:
        attempt.by_organiser = True
        attempt.hardware_class = report.system.hardware_class


def _end_cross_check(
    session: Session,
    check: Verification,
    report: ReplayReport,
    verdict: Verdict,
) -> None:
    """Compare a rerun with the first run. If they differ, a third owner's worker decides."""
    checked = session.get_one(Verification, check.checks_id)
    original = report_of(checked)
    assert original is not None  # noqa: S101  it is checked
    end(session, check, "report", verdict)
    earlier = _earlier(session, checked, check)
    benchmark = definition(session, checked.benchmark_sha256)
    if check.outcome == "inconclusive":
        _conclude_waiting(session, checked, NO_SECOND_WORKER)
    elif check.outcome == "verified":
        if earlier is not None:
            _take_out(session, earlier, checked)
        _conclude_waiting(session, checked, None)
    elif earlier is None and has_other_owner(
        session, checked, report.system.hardware_class, seeds=check.seeds
    ):
        first = next(item for item in original.runs if item.seed == report.runs[0].seed)
        _queue(session, checked, original, first.index)
    elif earlier is not None and agree(benchmark, earlier, report) == "verified":
        _refuse_first(session, checked, original)
    else:
        _conclude_waiting(session, checked, NOT_SETTLED)


def is_overtaken(session: Session, check: Verification) -> bool:
    """Check whether a rerun is of a refused report, which is made again."""
    if check.checks_id is None:
        return False
    checked = session.get_one(Verification, check.checks_id)
    return checked.report is None or check.created_at < checked.attempts[-1].created_at


def _checks_of(session: Session, checked: Verification) -> Sequence[Verification]:
    found = session.scalars(select(Verification).where(Verification.checks_id == checked.id)).all()
    return [each for each in found if not is_overtaken(session, each)]


def give_up_cross_check(session: Session, event: VerificationChanged) -> None:
    """Conclude the verification of a failed rerun. Cancel the reruns of a cancelled one."""
    check = event.verification
    if event.moment == "cancelled":
        for each in _checks_of(session, check):
            if each.state in OPEN:
                move(session, each, "cancel")
    if check.checks_id is None or event.moment not in ("failed", "cancelled"):
        return
    if not is_overtaken(session, check):
        checked = session.get_one(Verification, check.checks_id)
        _conclude_waiting(session, checked, NO_SECOND_WORKER)


def _earlier(session: Session, checked: Verification, check: Verification) -> ReplayReport | None:
    """Find an earlier rerun of the same run that differed from it."""
    for other in _checks_of(session, checked):
        if other is not check and other.outcome == "rejected" and other.seeds == check.seeds:
            return report_of(other)
    return None


def _conclude_waiting(session: Session, checked: Verification, why: Reason | None) -> None:
    others = _checks_of(session, checked)
    if any(each.state in OPEN for each in others):
        return  # The last of them concludes.
    if why is None and any(each.outcome == "inconclusive" for each in others):
        why = NO_SECOND_WORKER
    report = report_of(checked)
    if report is not None and checked.state == "checking":
        verdict = verdict_of(session, checked, report)
        assert verdict is not None  # noqa: S101  a replay has one
        _end_evidence(session, checked, report, verdict, why, event="conclude")


def _refuse_first(session: Session, checked: Verification, report: ReplayReport) -> None:
    _take_out(session, report, checked)
    if checked.state == "checking":
        failure = repeated("report_refused", "two other owners' workers contradict its report")
        move(session, checked.attempts[-1], "refute", failure=asdict(failure))
        checked.report = None
        queue_attempt(session, checked, "refute")


def _take_out(session: Session, contradicted: ReplayReport, checked: Verification) -> None:
    """Pause a worker that two others contradict. Withdraw its verdicts and repeat their checks."""
    worker = contradicted.system.worker
    why = f"two other owners' workers contradict it about verification {checked.id}"
    take_out_runs(session, worker)
    rows = session.scalars(
        select(Verification)
        .join(Attempt)
        .where(
            Attempt.worker == worker, Attempt.state == "done", Verification.state == "done",
            Verification.kind.in_(names_where(lambda purpose: purpose.fills_pool)),
        )
    ).unique()  # fmt: skip
    opened = []
    for verification in list(rows):
        submission = verification.submission
        if submission is None or not is_published(verification):
            continue
        verification.decision, verification.decision_reason = KEEP, why
        follow_evidence(session, submission)
        opened.append(verification.id)
        with suppress(ServerError):  # It was withdrawn, or is being verified already.
            order = Order(purpose_of(verification), verification.requested_by, why, submission)
            queue_request(session, order)
    pause_by_server(session, worker, by="cross-check", why=why, opened_again=opened)


def settle_submission(session: Session, event: VerificationChanged) -> None:
    """Derive the row of a verification's submission. Only a first verdict is published at once."""
    verification, submission = event.verification, event.verification.submission
    if submission is None or verification.checks_id is not None:
        return
    if not checks_claim(verification, submission):
        if event.moment == "done":
            _show_figures(session, submission, verification)
        raise_board_version(session, submission.benchmark_id)  # Rows say how a head-to-head goes.
        return
    if event.moment == "done":
        if published_verification(submission) is None:
            verification.decision, verification.decision_reason = PUBLISH, "first verdict"
            verification.decided_at = utc_now()
        package = submission.trained_package
        if package is not None and package.published_at is None:
            package.published_at = utc_now()
    elif event.moment == "queued" and published_verification(submission) is not None:
        return  # The published verdict holds meanwhile.
    has_ended = event.moment in (*ENDED, "decision_published")
    if has_ended and is_published(verification):
        _show_figures(session, submission, verification)
        duplicates = select(Submission).where(Submission.duplicate_of == submission.id)
        for each in session.scalars(duplicates).unique():
            if each.package is None:
                _check_claim(session, each, verification)
    follow_evidence(session, submission)
    is_timeless = has_ended and submission.evidence != "measured"
    if is_timeless and verification_under_way(session, submission.id) is None:
        replace_original(session, submission)  # The oldest duplicate takes its place.


def check_duplicate(session: Session, event: DuplicateMarked) -> None:
    """Take a duplicate's time from it, and compare its claim with the original's runs."""
    submission = event.submission
    follow_evidence(session, submission)
    original = session.get(Submission, submission.duplicate_of)
    published = None if original is None else verdict_that_holds(session, original)
    if submission.package is None and published is not None:
        _check_claim(session, submission, published)


def _check_claim(session: Session, submission: Submission, verification: Verification) -> None:
    report = report_of(verification)
    if report is None:
        return
    verdict = verdict_of(session, verification, report, claimed_by=submission)
    if verdict is not None:
        submission.check_word = CHECK_OF_STATUS[verdict.outcome]
        raise_board_version(session, submission.benchmark_id, submission_id=submission.id)


def _show_determinism(submission: Submission, verdict: Verdict) -> None:
    package = submission.package
    for reason in verdict.reasons:
        word = DETERMINISM.get(reason.code)
        if package is not None and word is not None and package.determinism != "struck":
            package.determinism = word


def _show_figures(session: Session, submission: Submission, verification: Verification) -> None:
    report = report_of(verification)
    if report is None:
        return
    is_of_class = report.system.hardware_class == submission.system["hardware_class"]
    if is_of_class and measures(trainings_of(verification), "latency"):
        figures = measured_figures(definition(session, verification.benchmark_sha256), report)
        if figures is not None and is_organisers_worker(session, report.system.worker):
            submission.measured_latency_ms = figures.p50_ms
    if purpose_of(verification).fills_pool:
        measured = [run.telemetry for run in report.runs if run.status == "reached"]
        joules = [None if each is None else each.energy_joules for each in measured]
        submission.energy_joules = energy_to_target_joules(joules) if is_of_class else None
