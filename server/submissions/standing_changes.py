"""Changes of submissions: withdrawn, waived, or a duplicate of an earlier one.

A duplicate has the configuration of an earlier live submission, its original. It is neither trained
nor ranked while the original is there. If the original ends without a time or is withdrawn, the
oldest duplicate takes its place. An original must be measured or under way, or it would keep others
from being trained.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Select, exists, or_, select, tuple_
from sqlalchemy.orm import Session

from finishline.api.submissions import SubmissionView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.ranking import evidence_words
from finishline.rules.scoring.violations import WaivableRule
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.purposes import HEAD_TO_HEAD
from server.base.board_versions import raise_board_version
from server.base.database import find_row, utc_now
from server.base.errors import ConflictError, NotAllowedError, NotFoundError
from server.base.events import (
    DuplicateMarked,
    EmbargoLifted,
    OriginalReplaced,
    SubmissionWithdrawn,
    emit,
)
from server.base.forms import Body, Sentence, example
from server.base.models import Submission, TrainingPackage, Verification
from server.base.standing import OPEN, configuration_of, row_evidence
from server.benchmarks.definitions import definition, rules_that_differ
from server.people.audit import audited
from server.people.callers import Caller
from server.people.declared import Form, Routes
from server.submissions.rows import changed_view, find_visible

ITS_PAGE = "/submissions/{submission_id}"
router = Routes(tags=["submissions"])


class WithdrawalCreate(Body):
    """The reason, shown on the submission's page and kept in the audit log."""

    model_config = example(reason="trained on the test set by mistake")

    reason: Sentence


class WaiverCreate(WithdrawalCreate):
    """A rule to waive for one submission, by its code, and the reason to show with it."""

    model_config = example(rule="too_few_runs", reason="one run costs 40,000 GPU hours")

    rule: WaivableRule


@contextmanager
def changed_standing(
    session: Session, caller: Caller, action: str, submission: Submission, reason: str, **more: Any
) -> Iterator[None]:
    """Record the changes of the block in the audit log, and mark the submission's board."""
    with audited(session, caller, action, submission, reason=reason, **more):
        yield
    raise_board_version(session, submission.benchmark_id, submission_id=submission.id)


@router.command(
    "/submissions/{submission_id}/withdrawal",
    Form("/submissions/{submission_id}/withdraw", to=ITS_PAGE),
    role="submitter",
)
def withdraw_submission(
    session: Session, caller: Caller, submission_id: str, body: WithdrawalCreate
) -> SubmissionView:
    """Withdraw a submission, for its submitter and organisers. It stays readable, unranked.

    Its queued verifications are cancelled. A replay that has begun goes on. Only an organiser can
    undo it.
    """
    # A replay under way counts, or you could withdraw an unlucky one and request it again.
    submission = find_visible(session, caller, submission_id)
    if not may_withdraw(caller, submission):
        raise NotAllowedError(
            f"Submission {submission_id} is not yours; its submitter or an organiser may withdraw "
            "it."
        )
    if submission.withdrawn_at is not None:
        raise ConflictError(f"Submission {submission_id} is withdrawn already.")
    cancelled = _open_verifications(session, submission_id)
    words = evidence_words(row_evidence(submission))
    consequence = f"the row, {words}, leaves the board; its measured runs stay"
    with changed_standing(
        session, caller, "submission.withdraw", submission, body.reason,
        cancelled=list(cancelled), consequence=consequence,
    ):  # fmt: skip
        submission.withdrawn_at = utc_now()
        submission.withdrawn_by, submission.withdrawn_because = caller.name, body.reason
    emit(session, SubmissionWithdrawn(submission, cancelled))
    return changed_view(session, submission)


@router.command("/submissions/{submission_id}/reinstatement", role="organiser")
def reinstate_submission(
    session: Session, caller: Caller, submission_id: str, body: WithdrawalCreate
) -> SubmissionView:
    """Let a withdrawn submission rank again, or a retired one hold first place."""
    submission = find_row(session, Submission, submission_id)
    was_withdrawn = submission.withdrawn_at is not None
    if not was_withdrawn and submission.retirement is None:
        raise ConflictError(f"Submission {submission_id} is neither withdrawn nor retired.")
    consequence = "the row may hold first place again"
    if was_withdrawn:
        words = evidence_words(row_evidence(submission))
        consequence = f"the row comes back to the board as {words}"
    with changed_standing(
        session, caller, "submission.reinstate", submission, body.reason, consequence=consequence
    ):
        submission.withdrawn_at = submission.withdrawn_by = submission.withdrawn_because = None
        submission.retirement = None
    if was_withdrawn:
        bring_back(session, submission)
    return changed_view(session, submission)


def may_withdraw(caller: Caller, submission: Submission) -> bool:
    """Return whether a caller is a submission's submitter or an organiser."""
    is_own = caller.is_submitter and submission.user_id == caller.user_id
    return is_own or caller.is_organiser


def _open_verifications(session: Session, submission_id: str) -> Sequence[str]:
    """List the verifications ended by a withdrawal. An independent rerun goes on."""
    about = or_(
        Verification.submission_id == submission_id, Verification.against_id == submission_id
    )
    stops = Verification.kind == HEAD_TO_HEAD.name
    ends = ((Verification.state == "queued") & Verification.checks_id.is_(None)) | stops
    query = select(Verification.id).where(about, Verification.state.in_(OPEN), ends)
    return session.scalars(query.order_by(Verification.id)).all()


def broken_rules(violations: Iterable[Mapping[str, Any]], waived: Collection[str]) -> list[str]:
    """List the codes of broken rules without a waiver, each once, in order."""
    codes = dict.fromkeys(violation["code"] for violation in violations)
    return [code for code in codes if code not in waived]


@router.command("/submissions/{submission_id}/waivers", role="organiser")
def waive_rule(
    session: Session, caller: Caller, submission_id: str, body: WaiverCreate
) -> SubmissionView:
    """Waive a rule broken by a result. It may rank, and shows the rule and the reason."""
    rule = body.rule
    submission = find_row(session, Submission, submission_id)
    waivers = submission.waivers or []
    waived = [waiver["rule"] for waiver in waivers]
    if rule in waived:
        raise ConflictError(f"{rule} is waived already for submission {submission_id}.")
    broken = broken_rules(submission.result.get("violations", ()), waived)
    if rule not in broken:
        raise ConflictError(
            f"Submission {submission_id} does not break {rule}; it breaks "
            f"{', '.join(broken) or 'no rule'}."
        )
    at = utc_now().isoformat()
    waiver = {"rule": rule, "reason": body.reason, "by": caller.name, "at": at}
    _set_waivers(session, caller, submission, "submission.waive", body.reason, [*waivers, waiver])
    return changed_view(session, submission)


@router.command("/submissions/{submission_id}/waivers/{rule}/revocation", role="organiser")
def revoke_rule_waiver(
    session: Session, caller: Caller, submission_id: str, rule: str, body: WithdrawalCreate
) -> SubmissionView:
    """Take a waiver back: the rule counts again."""
    submission = find_row(session, Submission, submission_id)
    waivers = submission.waivers or []
    left = [waiver for waiver in waivers if waiver["rule"] != rule]
    if len(left) == len(waivers):
        raise NotFoundError(f"{rule[:80]!r} is not waived for submission {submission_id}.")
    _set_waivers(session, caller, submission, "submission.revoke-waiver", body.reason, left)
    return changed_view(session, submission)


@router.command(None, Form("/submissions/{submission_id}/waive", to=ITS_PAGE), role="organiser")
def change_waiver(
    session: Session, caller: Caller, submission_id: str, body: WaiverCreate
) -> SubmissionView:
    """Waive a rule, or take its waiver back."""
    waivers = find_row(session, Submission, submission_id).waivers or ()
    if body.rule in [waiver["rule"] for waiver in waivers]:
        return revoke_rule_waiver(session, caller, submission_id, body.rule, body)
    return waive_rule(session, caller, submission_id, body)


def _set_waivers(
    session: Session,
    caller: Caller,
    submission: Submission,
    action: str,
    reason: str,
    waivers: list[dict[str, Any]],
) -> None:
    rules = [waiver["rule"] for waiver in waivers]
    broken = broken_rules(submission.result.get("violations", ()), rules)
    consequence = f"not ranked: it breaks {', '.join(broken)}" if broken else "the row may rank"
    with changed_standing(session, caller, action, submission, reason, consequence=consequence):
        submission.waivers, submission.eligible = waivers, not broken


def is_waived(submission: Submission, result: Mapping[str, Any]) -> bool:
    """Return whether a result breaks rules and all of them are waived."""
    waived = [waiver["rule"] for waiver in submission.waivers or ()]
    return bool(waived) and not broken_rules(result.get("violations", ()), waived)


def configuration_sha256(
    benchmark: Benchmark, claim: Claim, package: TrainingPackage | None = None
) -> str | None:
    """Hash the configuration to train for a submission, if it is known."""
    if package is None:
        if claim.trained_with != "reference" or claim.kind == "inference":
            return None
        offered = benchmark.replay.precisions if benchmark.replay is not None else ()
        if offered and claim.precision not in (None, *offered):
            return None
    environment = None if package is None else package.environment_sha256
    program = None if package is None else package.program_sha256
    found = configuration_of(benchmark, claim, environment=environment, program=program)
    return sha256_of(found)


def mark_duplicate(session: Session, submission: Submission) -> bool:
    """Link a submission to the live original of its configuration, if there is one."""
    benchmark = definition(session, submission.benchmark_sha256)
    original = find_original(session, submission, benchmark)
    if original is None:
        return False
    link(session, submission, original)
    return True


def find_original(
    session: Session, submission: Submission, benchmark: Benchmark, *, is_back: bool = False
) -> Submission | None:
    """Find the earlier live submission with a submission's configuration and rules.

    Under embargo it finds none, to keep others' submissions secret. If the submission `is_back`
    from a withdrawal, all live ones count as earlier.
    """
    key = submission.configuration_sha256
    if key is None or submission.embargoed:
        return None
    under_way = exists().where(
        Verification.submission_id == Submission.id, Verification.state.in_(OPEN)
    )
    earlier_one = tuple_(Submission.submitted_at, Submission.id) < (
        submission.submitted_at,
        submission.id,
    )
    candidates = session.scalars(
        _live(key).where(
            Submission.id != submission.id if is_back else earlier_one,
            Submission.duplicate_of.is_(None),
            Submission.embargoed.is_(False),
            or_(Submission.evidence == "measured", under_way),
        )
    )
    for one in candidates.unique():
        earlier = definition(session, one.benchmark_sha256)
        if earlier.sha256 == benchmark.sha256 or not rules_that_differ(earlier, benchmark):
            return one
    return None


def link(session: Session, submission: Submission, original: Submission) -> None:
    """Make a submission, with its duplicates, a duplicate of an original."""
    session.flush()
    own = select(Submission).where(Submission.duplicate_of == submission.id)
    for each in (submission, *session.scalars(own).unique().all()):
        each.duplicate_of, each.pool_id = original.id, None
        raise_board_version(session, each.benchmark_id, submission_id=each.id)
        emit(session, DuplicateMarked(each))


def mark_after_embargo(session: Session, event: EmbargoLifted) -> None:
    """Mark the duplicates among submissions after their embargo, the oldest first."""
    shown = Submission.id.in_(event.submission_ids)
    query = select(Submission).where(shown, Submission.withdrawn_at.is_(None))
    for one in session.scalars(query.order_by(Submission.submitted_at, Submission.id)).unique():
        mark_duplicate(session, one)


def bring_back(session: Session, submission: Submission) -> None:
    """Make a reinstated submission a duplicate or an original again, or let it be trained."""
    replaced, submission.duplicate_of = submission.duplicate_of, None
    session.flush()
    benchmark = definition(session, submission.benchmark_sha256)
    original = find_original(session, submission, benchmark, is_back=True)
    if original is not None:
        link(session, submission, original)
    elif replaced is not None:
        emit(session, OriginalReplaced(submission, session.get_one(Submission, replaced)))


def replace_withdrawn(session: Session, event: SubmissionWithdrawn) -> None:
    """Let the oldest duplicate take the place of a withdrawn submission."""
    replace_original(session, event.submission)


def replace_original(session: Session, original: Submission) -> None:
    """Make the oldest live duplicate the original. It takes over the runs, or is trained."""
    if original.configuration_sha256 is None:
        return
    session.flush()
    query = _live(original.configuration_sha256).where(Submission.duplicate_of == original.id)
    duplicates = list(session.scalars(query).unique())
    if not duplicates:
        return
    first, *others = duplicates
    first.duplicate_of, first.pool_id = None, original.pool_id
    for other in others:
        other.duplicate_of = first.id
    if original.withdrawn_at is None:
        original.pool_id = None
    else:  # The records still have its time as a holder.
        original.duplicate_of = first.id
    for each in (original, first, *others):
        raise_board_version(session, each.benchmark_id, submission_id=each.id)
    session.flush()
    emit(session, OriginalReplaced(first, original))


def _live(configuration: str) -> Select[Submission]:
    return (
        select(Submission)
        .where(Submission.configuration_sha256 == configuration, Submission.withdrawn_at.is_(None))
        .order_by(Submission.submitted_at, Submission.id)
    )
