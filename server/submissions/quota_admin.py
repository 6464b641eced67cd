"""Endpoints of quotas: read one's own; read and set everybody's as an organiser."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.quotas import (
    Measure,
    MyQuotaView,
    QuotaList,
    QuotaSet,
    QuotaView,
    SetQuotaView,
    SubjectKind,
    UseView,
)
from server.base.database import utc_now
from server.base.errors import no_such
from server.base.models import Charge, Organisation, Quota, Submission, User
from server.base.services import Services, ServicesDep
from server.base.settings import Settings
from server.base.viewer import ORGANISER
from server.benchmarks.queries import find_benchmark
from server.people.audit import Subject, record
from server.people.dependencies import Caller, CallerDep, OrganiserDep
from server.submissions.quotas import (
    MEASURES,
    Use,
    allowance_of_benchmark,
    allowance_of_user,
    amounts_set,
    default_allowance,
    find_quota,
    names_of_user,
    quotas_set,
    use_of_gpu_seconds,
    use_of_submissions,
)


def own_quotas(session: Session, settings: Settings, caller: Caller) -> MyQuotaView:
    """Quotas and use of the caller, and of benchmarks that have quotas."""
    user = session.get_one(User, caller.user_id)
    named = sorted({row.subject for row in quotas_set(session) if row.subject_kind == "benchmark"})
    return MyQuotaView(
        subject_kind="user",
        subject=user.name,
        quotas=_quotas_of_user(session, settings, user),
        benchmarks=[_view_of_benchmark(session, name) for name in named],
    )


def read_quota(session: Session, services: Services, kind: SubjectKind, subject: str) -> QuotaView:
    """Quotas and use of a subject. Raises NotFoundError."""
    require_subject(session, services, kind, subject)
    if kind == "benchmark":
        return _view_of_benchmark(session, subject)
    if kind == "user":
        user = _find_user(session, subject)
        quotas = _quotas_of_user(session, services.settings, user)
        return QuotaView(subject_kind=kind, subject=subject, quotas=quotas)
    quotas = []
    for measure in MEASURES:
        found = find_quota(session, kind, subject, measure)
        allowed = found.amount if found else default_allowance(services.settings, measure)
        quotas.append(_use_view(measure, Use(allowed, 0.0, 0.0, None)))
    return QuotaView(subject_kind=kind, subject=subject, quotas=quotas)


def read_quotas(session: Session, settings: Settings) -> QuotaList:
    """Default quotas and every quota that is set."""
    return QuotaList(
        defaults={measure: default_allowance(settings, measure) for measure in MEASURES},
        quotas=[
            SetQuotaView.model_validate(row, from_attributes=True) for row in quotas_set(session)
        ],
    )


def change_quota(
    session: Session,
    services: Services,
    caller: Caller,
    kind: SubjectKind,
    subject: str,
    wanted: QuotaSet,
) -> None:
    """Set the quotas of a subject; written to the audit log. Raises NotFoundError."""
    require_subject(session, services, kind, subject)
    before = _set_amounts(session, kind, subject)
    for measure in sorted(MEASURES):  # In the order in which requests lock them.
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


def require_subject(session: Session, services: Services, kind: SubjectKind, subject: str) -> None:
    """Raise NotFoundError unless there is such a user, organisation or benchmark."""
    if kind == "benchmark":
        find_benchmark(services.benchmarks, subject)
    elif kind == "user":
        _find_user(session, subject)
    elif session.scalar(select(Organisation.id).where(Organisation.name == subject)) is None:
        raise no_such("organisation", subject)


def _find_user(session: Session, name: str) -> User:
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        raise no_such("user", name)
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
    """Set quotas of a subject, in the form of the audit log."""
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


router = APIRouter(tags=["quotas"])
SubjectDep = Annotated[str, Path(max_length=100)]


@router.get("/me/quota")
def get_my_quota(services: ServicesDep, caller: CallerDep) -> MyQuotaView:
    """Read your quotas of submissions and replays, your use, and when there is room again."""
    with services.database.read(ORGANISER) as session:
        return own_quotas(session, services.settings, caller)


@router.get("/quotas")
def list_quotas(services: ServicesDep, _caller: OrganiserDep) -> QuotaList:
    """List the default quotas, and who may use more or less. For organisers."""
    with services.database.read(ORGANISER) as session:
        return read_quotas(session, services.settings)


@router.get("/quotas/{kind}/{subject}")
def get_quota(
    kind: SubjectKind, subject: SubjectDep, services: ServicesDep, _caller: OrganiserDep
) -> QuotaView:
    """Read the quotas and use of a user, or of everybody on a benchmark. For organisers."""
    with services.database.read(ORGANISER) as session:
        return read_quota(session, services, kind, subject)


@router.put("/quotas/{kind}/{subject}")
def set_quota(
    kind: SubjectKind,
    subject: SubjectDep,
    body: QuotaSet,
    services: ServicesDep,
    caller: OrganiserDep,
) -> QuotaView:
    """Set the quotas of a user, of each member of an organisation, or of a benchmark.

    For organisers; in force from the next request on.
    """
    with services.database.write() as session:
        change_quota(session, services, caller, kind, subject, body)
    with services.database.read(ORGANISER) as session:
        return read_quota(session, services, kind, subject)
