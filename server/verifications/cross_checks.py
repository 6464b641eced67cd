"""Cross-checks: a finished run is trained again on another owner's worker before it is believed."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session, aliased

from finishline.rules.canonical import sha256_of
from finishline.rules.verification.cross_check import agree
from finishline.rules.verification.messages import Failure, ReplayReport
from finishline.rules.verification.purposes import CROSS_CHECK
from finishline.rules.verification.replay import is_excused
from finishline.rules.verification.verdict import Reason, Verdict
from server.base.errors import ServerError
from server.base.events import VerificationChanged
from server.base.fleet import Fleet
from server.base.models import Attempt, Verification, WorkerRow
from server.base.standing import (
    KEEP,
    OPEN,
    is_published,
    names_where,
    purpose_of,
    report_of,
)
from server.benchmarks.definitions import definition
from server.verifications.choose import owners_at
from server.verifications.jobs import Order, queue_attempt, queue_job
from server.verifications.outcomes import NO_SECOND_WORKER, end_evidence, judge_report
from server.verifications.pools import follow_evidence, take_out_runs
from server.verifications.requests import queue_request
from server.verifications.states import end, move
from server.verifications.workers import is_organisers_worker, pause_by_server

ORGANISERS_SHARE = 10  # One run in so many of an organisers' worker.


def drawn_runs(nonce: str, report: object, *, among: Sequence[int], organisers: bool) -> list[int]:
    """The indexes of the runs to train again: a function of the opened nonce and the report.

    That is one run of every report, or one in ten runs of an organisers' worker. A worker can't
    foresee it, because it doesn't know the nonce.
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


def begin_cross_check(
    session: Session,
    verification: Verification,
    report: ReplayReport,
    verdict: Verdict,
) -> tuple[bool, Reason | None]:
    """Queue the drawn cross-checks; returns if the verdict waits for them, and why it stays open.

    Rejected runs are all trained again, unless an organisers' worker trained them. Only replays
    are repeated, so of other jobs only an organisers' worker is believed.
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
    """Whether another owner has a worker of the class, not held, that could cross-check."""
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


def end_cross_check(
    session: Session,
    check: Verification,
    report: ReplayReport,
    verdict: Verdict,
) -> None:
    """Compare a run that was trained again with the first one; then settle the waiting verdict.

    If they differ, a worker of a third owner decides, and the contradicted worker is paused.
    """
    checked = session.get_one(Verification, check.checks_id)
    original = report_of(checked)
    assert original is not None  # noqa: S101  it is checked
    first = next(item for item in original.runs if item.seed == report.runs[0].seed)
    end(session, check, "report", verdict)
    earlier = _earlier(session, checked, check)
    benchmark = definition(session, checked.benchmark_sha256)
    if check.outcome == "inconclusive":
        _conclude_waiting(session, checked, original, NO_SECOND_WORKER)
    elif check.outcome == "verified":
        if earlier is not None:
            take_out(session, earlier, checked)
        _conclude_waiting(session, checked, original, None)
    elif earlier is None and has_other_owner(
        session, checked, report.system.hardware_class, seeds=check.seeds
    ):
        _queue(session, checked, original, first.index)
    elif earlier is not None and agree(benchmark, earlier, report) == "verified":
        _refuse_first(session, checked, original)
    else:
        _conclude_waiting(session, checked, original, NOT_SETTLED)


def is_overtaken(session: Session, check: Verification) -> bool:
    """Whether the report that a cross-check was drawn for was refused."""
    if check.checks_id is None:
        return False
    checked = session.get_one(Verification, check.checks_id)
    return checked.report is None or check.created_at < checked.attempts[-1].created_at


def _is_of_latest_report() -> ColumnElement[bool]:
    """Whether a cross-check was drawn for the latest report of what it checks.

    A report that others contradict is refused, and its runs are made again.
    """
    attempt = aliased(Attempt)
    latest = select(func.max(attempt.created_at)).where(
        attempt.verification_id == Verification.checks_id
    )
    return Verification.created_at >= latest.scalar_subquery()


def _checks_of(session: Session, checked: Verification) -> Sequence[Verification]:
    """Cross-checks of a verification's latest report."""
    query = select(Verification).where(Verification.checks_id == checked.id, _is_of_latest_report())
    return session.scalars(query).all()


def give_up_cross_check(session: Session, event: VerificationChanged) -> None:
    """Conclude the verification that waits for a cross-check no worker could make.

    Those of a verification that is cancelled are cancelled with it.
    """
    check = event.verification
    if event.moment == "cancelled":
        for each in _checks_of(session, check):
            if each.state in OPEN:
                move(session, each, "cancel")
    if check.checks_id is None or event.moment not in ("failed", "cancelled"):
        return
    checked = session.get_one(Verification, check.checks_id)
    original = report_of(checked)
    if original is not None and not is_overtaken(session, check):
        _conclude_waiting(session, checked, original, NO_SECOND_WORKER)


def take_out(session: Session, contradicted: ReplayReport, checked: Verification) -> None:
    """Pause a worker contradicted by two others; reopen verdicts that rest on it alone."""
    name = contradicted.system.worker
    why = f"two other owners' workers contradict it about verification {checked.id}"
    if session.get(WorkerRow, name) is not None:
        opened = _open_again(session, name, why)
        pause_by_server(session, name, by="cross-check", why=why, opened_again=opened)


def _earlier(session: Session, checked: Verification, check: Verification) -> ReplayReport | None:
    """Report of an earlier cross-check of the same run, which differed from it."""
    for other in _checks_of(session, checked):
        if other is not check and other.outcome == "rejected" and other.seeds == check.seeds:
            return report_of(other)
    return None


def _conclude_waiting(
    session: Session,
    checked: Verification,
    report: ReplayReport,
    why: Reason | None,
) -> None:
    others = _checks_of(session, checked)
    if any(each.state in OPEN for each in others):
        return  # The last of them concludes.
    if why is None and any(each.outcome == "inconclusive" for each in others):
        why = NO_SECOND_WORKER
    if checked.state == "checking":
        verdict = judge_report(session, checked, report)
        assert verdict is not None  # noqa: S101  a replay has one
        end_evidence(session, checked, report, verdict, why, event="conclude")


def _refuse_first(session: Session, checked: Verification, report: ReplayReport) -> None:
    """Pause the first worker. Retry its waiting verification and reopen its published verdicts."""
    take_out(session, report, checked)
    if checked.state == "checking":
        failure = Failure(
            kind="infrastructure",
            code="report_refused",
            message="two other owners' workers contradict its report",
            next_step="nothing to do: another attempt is queued",
        )
        move(session, checked.attempts[-1], "refute", failure=asdict(failure))
        checked.report = None
        queue_attempt(session, checked, "refute")


def _open_again(session: Session, worker: str, why: str) -> list[str]:
    """Withdraw the published verdicts of a worker and queue each check again; returns their ids."""
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
    return opened
