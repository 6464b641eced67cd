"""Which quota holds: one that an organiser set, or that of the settings."""

from collections.abc import Collection, Mapping, Sequence
from typing import cast

from sqlalchemy import Table, bindparam, select, tuple_
from sqlalchemy.orm import Session

from server.models import Quota, User
from server.quotas.usage import Measure
from server.settings import Settings

Named = tuple[str, str]
"""The kind of a subject and its name: ("user", "alice")."""
Amounts = Mapping[tuple[str, str, str], int | None]
"""What is set, by kind, subject and measure."""

_SET = cast(Table, Quota.__table__).c
_AMOUNTS = (
    select(_SET.subject_kind, _SET.subject, _SET.measure, _SET.amount)
    .where(tuple_(_SET.subject_kind, _SET.subject).in_(bindparam("named", expanding=True)))
    .order_by(_SET.subject_kind, _SET.subject, _SET.measure)
)
_LOCKED = _AMOUNTS.with_for_update()


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


def amounts_set(session: Session, named: Collection[Named], *, lock: bool = False) -> Amounts:
    """What is set for some subjects; `lock` keeps it so until the transaction ends."""
    session.flush()  # As before each statement of the session's own.
    rows = session.connection().execute(_LOCKED if lock else _AMOUNTS, {"named": named})
    return {(kind, subject, measure): amount for kind, subject, measure, amount in rows}


def names_of_user(user: User) -> list[Named]:
    """Whose quotas a user is held to: their own comes before their organisation's."""
    organisation = user.organisation
    return names_of(user.name, organisation.name if organisation else None)


def names_of(user: str, organisation: str | None) -> list[Named]:
    """As `names_of_user`, by the names of both."""
    return [("user", user)] + ([("organisation", organisation)] if organisation else [])


def allowance_of_user(
    amounts: Amounts, settings: Settings, names: Sequence[Named], measure: Measure
) -> int | None:
    """What one who is held to the quotas of these names may use, else what the settings say."""
    for kind, subject in names:
        if (kind, subject, measure) in amounts:
            return amounts[kind, subject, measure]
    return default_allowance(settings, measure)


def allowance_of_benchmark(amounts: Amounts, benchmark_id: str, measure: Measure) -> int | None:
    """What all submitters of a benchmark may use together; no limit unless one is set."""
    return amounts.get(("benchmark", benchmark_id, measure))
