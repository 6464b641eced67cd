"""Quotas as they are shown, and set by an organiser."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.benchmarks.queries import find_benchmark
from server.database import utc_now
from server.errors import NotFoundError
from server.models import Charge, Organisation, Quota, Submission, User
from server.people.audit import Subject, record
from server.people.dependencies import Caller, Parts
from server.quotas.queries import (
    allowance_of_benchmark,
    allowance_of_user,
    amounts_set,
    default_allowance,
    find_quota,
    list_quotas,
    names_of_user,
)
from server.quotas.schemas import (
    MyQuotaView,
    QuotaList,
    QuotaSet,
    QuotaView,
    SetQuotaView,
    SubjectKind,
    UseView,
)
from server.quotas.usage import MEASURES, Measure, Use, use_of_gpu_seconds, use_of_submissions
from server.settings import Settings


def own_quotas(session: Session, settings: Settings, caller: Caller) -> MyQuotaView:
    """What the caller has used and may use, and what holds on benchmarks."""
    user = session.get_one(User, caller.user_id)
    named = sorted({row.subject for row in list_quotas(session) if row.subject_kind == "benchmark"})
    return MyQuotaView(
        subject_kind="user",
        subject=user.name,
        quotas=_quotas_of_user(session, settings, user),
        benchmarks=[_view_of_benchmark(session, name) for name in named],
    )


def read_quota(session: Session, parts: Parts, kind: SubjectKind, subject: str) -> QuotaView:
    """What somebody, or a benchmark, has used and may use. Raises NotFoundError."""
    require_subject(session, parts, kind, subject)
    if kind == "benchmark":
        return _view_of_benchmark(session, subject)
    if kind == "user":
        user = _find_user(session, subject)
        quotas = _quotas_of_user(session, parts.settings, user)
        return QuotaView(subject_kind=kind, subject=subject, quotas=quotas)
    quotas = []
    for measure in MEASURES:
        found = find_quota(session, kind, subject, measure)
        allowed = found.amount if found else default_allowance(parts.settings, measure)
        quotas.append(_use_view(measure, Use(allowed, 0.0, 0.0, None)))
    return QuotaView(subject_kind=kind, subject=subject, quotas=quotas)


def read_quotas(session: Session, settings: Settings) -> QuotaList:
    """The settings' quotas and every other one."""
    return QuotaList(
        defaults={measure: default_allowance(settings, measure) for measure in MEASURES},
        quotas=[
            SetQuotaView.model_validate(row, from_attributes=True) for row in list_quotas(session)
        ],
    )


def set_quota(
    session: Session,
    parts: Parts,
    caller: Caller,
    kind: SubjectKind,
    subject: str,
    wanted: QuotaSet,
) -> None:
    """Set what somebody may use; written to the audit log. Raises NotFoundError."""
    require_subject(session, parts, kind, subject)
    before = _set_amounts(session, kind, subject)
    for measure in sorted(MEASURES):  # As they are locked by whoever is held to them.
        amount = getattr(wanted, measure)
        if amount is not None:
            _set_one(session, caller, kind, subject, measure, amount, wanted.reason)
    session.flush()
    record(
        session,
        caller,
        "quota.set",
        Subject(kind, subject),
        reason=wanted.reason,
        before=before,
        after=_set_amounts(session, kind, subject),
    )


def require_subject(session: Session, parts: Parts, kind: SubjectKind, subject: str) -> None:
    """Raise NotFoundError unless there is such a user, organisation or benchmark."""
    if kind == "benchmark":
        find_benchmark(parts.benchmarks, subject)
    elif kind == "user":
        _find_user(session, subject)
    elif session.scalar(select(Organisation.id).where(Organisation.name == subject)) is None:
        raise NotFoundError(f"There is no organisation {subject[:100]!r}.")


def _find_user(session: Session, name: str) -> User:
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        raise NotFoundError(f"There is no user {name[:100]!r}.")
    return user


def _set_one(
    session: Session,
    caller: Caller,
    kind: SubjectKind,
    subject: str,
    measure: Measure,
    amount: int | str,
    reason: str,
) -> None:
    found = session.get(Quota, (kind, subject, measure), with_for_update=True)
    if amount == "default":
        if found is not None:
            session.delete(found)
        return
    if found is None:
        found = Quota(subject_kind=kind, subject=subject, measure=measure)
        session.add(found)
    found.amount = None if isinstance(amount, str) else amount
    found.reason = reason
    found.set_by = caller.user_id
    found.set_at = utc_now()


def _set_amounts(session: Session, kind: str, subject: str) -> dict[str, Any]:
    """What is set, as the audit log keeps it."""
    found = ((measure, find_quota(session, kind, subject, measure)) for measure in MEASURES)
    return {
        measure: "default" if row is None else "unlimited" if row.amount is None else row.amount
        for measure, row in found
    }


def _quotas_of_user(session: Session, settings: Settings, user: User) -> list[UseView]:
    names = names_of_user(user)
    amounts = amounts_set(session, names)
    return _views(
        session,
        lambda measure: allowance_of_user(amounts, settings, names, measure),
        submissions=Submission.user_id == user.id,
        charges=Charge.user_id == user.id,
    )


def _view_of_benchmark(session: Session, benchmark_id: str) -> QuotaView:
    ours = Submission.benchmark_id == benchmark_id
    amounts = amounts_set(session, [("benchmark", benchmark_id)])
    quotas = _views(
        session,
        lambda measure: allowance_of_benchmark(amounts, benchmark_id, measure),
        submissions=ours,
        charges=ours,
    )
    return QuotaView(subject_kind="benchmark", subject=benchmark_id, quotas=quotas)


def _views(
    session: Session,
    allowance: Callable[[Measure], int | None],
    *,
    submissions: Any,
    charges: Any,
) -> list[UseView]:
    now = utc_now()
    made = use_of_submissions(
        session, submissions, allowed=allowance("submissions_per_day"), now=now
    )
    took = use_of_gpu_seconds(session, charges, allowed=allowance("gpu_seconds_per_month"), now=now)
    return [_use_view("submissions_per_day", made), _use_view("gpu_seconds_per_month", took)]


def _use_view(measure: Measure, use: Use) -> UseView:
    return UseView(
        measure=measure,
        allowed=use.allowed,
        used=use.used,
        reserved=use.reserved,
        room_at=use.room_at,
    )
