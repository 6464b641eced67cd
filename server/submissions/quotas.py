"""Quotas: the amounts allowed, by an organiser or the settings, and their use.

Use is counted from stored rows, so no counter can be wrong. An attempt that failed by the
infrastructure, was lost or cancelled counts nothing. That is the refund. One that its own submitter
cut short by a withdrawal counts as long as it ran.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import ColumnElement, Table, bindparam, select, tuple_
from sqlalchemy.orm import Session

from finishline.api.quotas import Measure
from finishline.rules.verification.purposes import PURPOSES
from server.base.models import Attempt, Charge, Quota, Submission, User, Verification
from server.base.settings import Settings

MEASURES: tuple[Measure, ...] = ("submissions_per_day", "gpu_seconds_per_month")
DAY = timedelta(days=1)
MONTH = timedelta(days=30)
OPEN = ("queued", "running")
MOST_COUNTED = 1_000_000


@dataclass(frozen=True)
class Use:
    """Use of a quota, `reserved` included; `allowed` None is no limit.

    `room_at` is when there is room again, None while there is, or if there will never be any.
    """

    allowed: int | None
    used: float
    reserved: float
    room_at: datetime | None


@dataclass(frozen=True)
class Spent:
    """A charged verification: its time, its accelerator seconds, and whether it is under way."""

    created_at: datetime
    gpu_seconds: float
    is_open: bool


def use_of_submissions(
    session: Session, whose: ColumnElement[bool], *, allowed: int | None, now: datetime
) -> Use:
    """Use of the submissions of the last 24 hours. Results published elsewhere do not count."""
    query = (
        select(Submission.submitted_at)
        .where(whose, Submission.submitted_at > now - DAY, Submission.evidence != "published")
        .order_by(Submission.submitted_at.desc())
        .limit(MOST_COUNTED if allowed is None else max(allowed, 1))
    )
    moments = list(session.scalars(query))
    is_full = allowed is not None and len(moments) >= allowed
    # With the oldest of as many as are allowed gone, there is room for one.
    room_at = moments[-1] + DAY if is_full and allowed else None
    return Use(allowed, len(moments) if allowed != 0 else 0, 0.0, room_at)


def use_of_gpu_seconds(
    session: Session,
    whose: ColumnElement[bool],
    *,
    allowed: int | None,
    now: datetime,
    wanted: float = 0.0,
) -> Use:
    """Accelerator seconds of the last 30 days; verifications under way count their estimate."""
    spent = list(_spent(session, whose, now=now))
    used = sum(each.gpu_seconds for each in spent)
    reserved = sum(each.gpu_seconds for each in spent if each.is_open)
    return Use(allowed, used, reserved, _room_at(spent, allowed=allowed, used=used, wanted=wanted))


def _room_at(
    spent: Sequence[Spent], *, allowed: int | None, used: float, wanted: float
) -> datetime | None:
    """Time at which enough of the use is more than 30 days ago."""
    if allowed is None or used + wanted <= allowed or wanted > allowed:
        return None
    left = used + wanted - allowed
    for each in spent:
        left -= each.gpu_seconds
        if left <= 0:
            return each.created_at + MONTH
    return None


def _spent(session: Session, whose: ColumnElement[bool], *, now: datetime) -> Iterator[Spent]:
    """Charged verifications, the oldest first."""
    charges = session.execute(
        select(Charge.verification_id, Charge.created_at, Charge.gpu_seconds_reserved,
               Verification.state)
        .join(Verification, Verification.id == Charge.verification_id)
        .join(Submission, Submission.id == Verification.submission_id)
        .where(whose, Charge.created_at > now - MONTH)
        .order_by(Charge.created_at, Charge.verification_id)
    ).all()  # fmt: skip
    seconds = _seconds_by_verification(session, whose, now=now)
    for verification_id, created_at, reserved, state in charges:
        is_open, ran = state in OPEN, seconds.get(verification_id, 0.0)
        yield Spent(created_at, max(ran, reserved) if is_open else ran, is_open)


def _seconds_by_verification(
    session: Session, whose: ColumnElement[bool], *, now: datetime
) -> dict[str, float]:
    rows = session.execute(
        select(Attempt.verification_id, Attempt.state, Attempt.failure, Attempt.started_at,
               Attempt.ended_at, Attempt.accelerators, Verification.kind)
        .join(Charge, Charge.verification_id == Attempt.verification_id)
        .join(Verification, Verification.id == Attempt.verification_id)
        .join(Submission, Submission.id == Verification.submission_id)
        .where(whose, Charge.created_at > now - MONTH, Attempt.started_at.is_not(None))
    )  # fmt: skip
    found: dict[str, float] = {}
    for verification_id, state, failure, started_at, ended_at, accelerators, kind in rows:
        if counts(state, failure):
            seconds = ((ended_at or now) - started_at).total_seconds()
            spent = seconds * PURPOSES[kind].devices(accelerators or 0)
            found[verification_id] = found.get(verification_id, 0.0) + spent
    return found


def counts(state: str, failure: dict[str, Any] | None) -> bool:
    """Whether an attempt counts against its submitter's quota."""
    if state == "failed":
        return failure is None or failure.get("kind") != "infrastructure"
    return state in ("running", "done")


Named = tuple[str, str]
"""Kind of a subject and its name: ("user", "alice")."""
Amounts = Mapping[tuple[str, str, str], int | None]
"""Amounts set, by kind, subject and measure."""

_SET = cast(Table, Quota.__table__).c
_AMOUNTS = (
    select(_SET.subject_kind, _SET.subject, _SET.measure, _SET.amount)
    .where(tuple_(_SET.subject_kind, _SET.subject).in_(bindparam("named", expanding=True)))
    .order_by(_SET.subject_kind, _SET.subject, _SET.measure)
)
_LOCKED = _AMOUNTS.with_for_update()


def quotas_set(session: Session) -> list[Quota]:
    """Every quota that an organiser set."""
    return list(
        session.scalars(select(Quota).order_by(Quota.subject_kind, Quota.subject, Quota.measure))
    )


def find_quota(session: Session, kind: str, subject: str, measure: Measure) -> Quota | None:
    """Quota that an organiser set; None for the default."""
    return session.get(Quota, (kind, subject, measure))


def default_allowance(settings: Settings, measure: Measure) -> int | None:
    """Default quota of a user in the settings; None is no limit."""
    allowed = {
        "submissions_per_day": settings.quota_submissions_per_day,
        "gpu_seconds_per_month": settings.quota_gpu_seconds_per_month,
    }[measure]
    return None if allowed == "unlimited" else allowed


def amounts_set(session: Session, named: Collection[Named], *, lock: bool = False) -> Amounts:
    """Amounts set for some subjects; `lock` locks them until the transaction ends."""
    session.flush()  # As before each statement of the session's own.
    rows = session.connection().execute(_LOCKED if lock else _AMOUNTS, {"named": named})
    return {(kind, subject, measure): amount for kind, subject, measure, amount in rows}


def names_of_user(user: User) -> list[Named]:
    """Subjects of a user's quotas: their own name comes before their organisation's."""
    organisation = user.organisation
    return names_of(user.name, organisation.name if organisation else None)


def names_of(user: str, organisation: str | None) -> list[Named]:
    """Subjects as in `names_of_user`, from the names of both."""
    return [("user", user)] + ([("organisation", organisation)] if organisation else [])


def allowance_of_user(
    amounts: Amounts, settings: Settings, names: Sequence[Named], measure: Measure
) -> int | None:
    """Amount set for the first of these subjects that has one, else the default."""
    for kind, subject in names:
        if (kind, subject, measure) in amounts:
            return amounts[kind, subject, measure]
    return default_allowance(settings, measure)


def allowance_of_benchmark(amounts: Amounts, benchmark_id: str, measure: Measure) -> int | None:
    """Amount that all submitters of a benchmark share; no limit unless one is set."""
    return amounts.get(("benchmark", benchmark_id, measure))
