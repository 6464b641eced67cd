"""Which quota holds: one that an organiser set, or that of the settings."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.models import Quota, User
from server.quotas.usage import Measure
from server.settings import Settings


def list_quotas(session: Session) -> list[Quota]:
    """Everything that is set unlike the settings."""
    return list(
        session.scalars(select(Quota).order_by(Quota.subject_kind, Quota.subject, Quota.measure))
    )


def find_quota(session: Session, kind: str, subject: str, measure: Measure) -> Quota | None:
    """What an organiser set, if anything."""
    return session.get(Quota, (kind, subject, measure))


def default_allowance(settings: Settings, measure: Measure) -> int | None:
    """What the settings allow a user; None is no limit."""
    allowed = {
        "submissions_per_day": settings.quota_submissions_per_day,
        "gpu_seconds_per_month": settings.quota_gpu_seconds_per_month,
    }[measure]
    return None if allowed == "unlimited" else allowed


def allowance_of_user(
    session: Session, settings: Settings, user: User, measure: Measure
) -> int | None:
    """A user's own quota, else that of each member of their organisation, else the settings'."""
    named = [("user", user.name)]
    if user.organisation is not None:
        named.append(("organisation", user.organisation.name))
    for kind, subject in named:
        quota = find_quota(session, kind, subject, measure)
        if quota is not None:
            return quota.amount
    return default_allowance(settings, measure)


def allowance_of_benchmark(session: Session, benchmark_id: str, measure: Measure) -> int | None:
    """What all submitters of a benchmark may use together; no limit unless one is set."""
    quota = find_quota(session, "benchmark", benchmark_id, measure)
    return quota.amount if quota is not None else None
