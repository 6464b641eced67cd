"""Waive a rule for one submission: its result may rank though it breaks that rule."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fastapi import APIRouter
from sqlalchemy.orm import Session

from finishline.api.submissions import SubmissionView
from finishline.rules.scoring.violations import WaivableRule
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.errors import ConflictError, NotFoundError
from server.base.forms import example
from server.base.models import Submission
from server.base.request_context import note
from server.base.services import ServicesDep
from server.people.audit import Subject, record
from server.people.dependencies import Caller, OrganiserDep
from server.submissions.service import find_submission
from server.submissions.withdrawals import WithdrawalCreate, view_of


class WaiverCreate(WithdrawalCreate):
    """A rule to waive for one submission, by its code, and the reason that is shown with it."""

    model_config = example(rule="too_few_runs", reason="one run costs 40,000 GPU hours")

    rule: WaivableRule


def broken_rules(violations: Iterable[Mapping[str, Any]], waived: Collection[str]) -> list[str]:
    """Codes of the rules that a stored result breaks and nobody waived, each once, in order."""
    codes = dict.fromkeys(violation["code"] for violation in violations)
    return [code for code in codes if code not in waived]


def waive(
    session: Session, caller: Caller, submission_id: str, *, rule: str, reason: str
) -> Submission:
    """Waive a rule that a result breaks, for organisers. Written to the audit log."""
    submission = find_submission(session, submission_id)
    waived = [waiver["rule"] for waiver in submission.waivers or ()]
    if rule in waived:
        raise ConflictError(f"{rule} is waived already for submission {submission_id}.")
    broken = broken_rules(submission.result.get("violations", ()), waived)
    if rule not in broken:
        raise ConflictError(
            f"Submission {submission_id} does not break {rule}; it breaks "
            f"{', '.join(broken) or 'no rule'}."
        )
    at = utc_now().isoformat()
    waiver = {"rule": rule, "reason": reason, "by": caller.name, "at": at}
    _set(session, caller, submission, "submission.waive", reason, added=waiver)
    return submission


def revoke_waiver(
    session: Session, caller: Caller, submission_id: str, *, rule: str, reason: str
) -> Submission:
    """Take a waiver back, for organisers; written to the audit log. Raises NotFoundError."""
    submission = find_submission(session, submission_id)
    waiver = next((each for each in submission.waivers or () if each["rule"] == rule), None)
    if waiver is None:
        raise NotFoundError(f"{rule[:80]!r} is not waived for submission {submission_id}.")
    _set(session, caller, submission, "submission.revoke-waiver", reason, removed=waiver)
    return submission


def is_waived(submission: Submission, result: Mapping[str, Any]) -> bool:
    """Whether every rule that a result of the submission breaks is waived for it, one at least."""
    waived = [waiver["rule"] for waiver in submission.waivers or ()]
    return bool(waived) and not broken_rules(result.get("violations", ()), waived)


def _set(
    session: Session,
    caller: Caller,
    submission: Submission,
    action: str,
    reason: str,
    *,
    added: Mapping[str, Any] | None = None,
    removed: Mapping[str, Any] | None = None,
) -> None:
    kept = [each for each in submission.waivers or () if each != removed]
    submission.waivers = [*kept, added] if added is not None else kept
    rules = [waiver["rule"] for waiver in submission.waivers]
    still = broken_rules(submission.result.get("violations", ()), rules)
    submission.eligible = not still
    raise_board_version(session, submission.benchmark_id, submission_id=submission.id)
    consequence = f"not ranked: it breaks {', '.join(still)}" if still else "the row may rank"
    record(
        session,
        caller,
        action,
        Subject("submission", submission.id),
        reason=reason,
        before={"waiver": dict(removed)} if removed is not None else None,
        after={"waiver": dict(added or {}), "consequence": consequence},
    )


router = APIRouter(tags=["submissions"])


@router.post("/submissions/{submission_id}/waivers")
def waive_rule(
    submission_id: str, body: WaiverCreate, services: ServicesDep, caller: OrganiserDep
) -> SubmissionView:
    """Waive a rule that a result breaks: it may rank, and rule and reason stand beside it."""
    note(submission_id=submission_id)
    with services.database.write() as session:
        waived = waive(session, caller, submission_id, rule=body.rule, reason=body.reason)
        return view_of(session, waived)


@router.post("/submissions/{submission_id}/waivers/{rule}/revocation")
def revoke_rule_waiver(
    submission_id: str,
    rule: str,
    body: WithdrawalCreate,
    services: ServicesDep,
    caller: OrganiserDep,
) -> SubmissionView:
    """Take a waiver back: the rule counts again."""
    note(submission_id=submission_id)
    with services.database.write() as session:
        revoked = revoke_waiver(session, caller, submission_id, rule=rule, reason=body.reason)
        return view_of(session, revoked)
