"""Quotas of users: submissions in 24 hours, and accelerator seconds of replays in 30 days.

Use is counted from stored rows, so it is always right. Attempts are free if they were lost,
cancelled, or failed because of the infrastructure. If the submitter's withdrawal cuts one short, it
counts as long as it ran.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BeforeValidator, ConfigDict, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.people import Measure, QuotaView, UseView
from finishline.api.schema import Schema
from finishline.rules.text import count_text
from finishline.rules.verification.purposes import PURPOSES
from server.base.database import Services, state_of, utc_now
from server.base.errors import ContentError, NotAllowedError, UsedUpError
from server.base.forms import Body, Sentence
from server.base.models import Attempt, Submission, User, Verification
from server.base.standing import OPEN, Estimator
from server.base.visibility import ORGANISER, seeing
from server.benchmarks.definitions import definition
from server.people.audit import audited
from server.people.callers import Caller, Fields
from server.people.declared import Form, Routes, filled
from server.people.users import find_user

MEASURES: tuple[Measure, ...] = ("submissions_per_day", "gpu_seconds_per_month")
DAY = timedelta(days=1)
MONTH = timedelta(days=30)
MOST_COUNTED = 1_000_000
NOTHING_KEPT = "; nothing of this request was kept."


@dataclass(frozen=True)
class Spent:
    """A verification on a quota: its time, its accelerator seconds, and whether it is under way."""

    created_at: datetime
    gpu_seconds: float
    is_open: bool


def default_allowances(session: Session) -> dict[Measure, int | None]:
    """Return the default limits of a user. None is unlimited."""
    settings = state_of(session, Services).settings
    allowed = {name: getattr(settings, f"quota_{name}") for name in MEASURES}
    return {name: None if isinstance(most, str) else most for name, most in allowed.items()}


def _allowed(session: Session, user_id: int, measure: Measure) -> int | None:
    override = session.get_one(User, user_id).quota or {}
    return override.get(measure, default_allowances(session)[measure])


def require_room_for_submission(session: Session, *, user_id: int) -> None:
    """Raise UsedUpError unless the user's daily quota has room."""
    use = use_of_submissions(session, user_id)
    made = count_text(round(use.used), "submission")
    verb = "is" if use.allowed == 1 else "are"
    _require(use, 1, f"You have made {made} in 24 hours, {use.allowed} {verb} allowed.")


def reserve_replay(
    session: Session,
    submission: Submission,
    *,
    user_id: int,
    kind: str,
    wishes: Mapping[str, int] | None = None,
) -> float:
    """Estimate a verification's accelerator seconds, if the user's quota has room for them."""
    benchmark = definition(session, submission.benchmark_sha256)
    expected = Estimator(session, kind, wishes).estimate(submission, benchmark)
    wanted = expected.seconds * devices(kind, expected.accelerators)
    require_gpu_seconds(session, wanted, user_id=user_id, what="this replay")
    return wanted


def require_gpu_seconds(session: Session, wanted: float, *, user_id: int, what: str) -> None:
    """Raise UsedUpError or NotAllowedError unless the user's quota has room for so many."""
    use = use_of_gpu_seconds(session, user_id, wanted=wanted)
    told = (
        f"You have used {use.used:.0f} accelerator seconds in 30 days, {use.reserved:.0f} of "
        f"them reserved for running replays; {use.allowed} are allowed, and {what} will take "
        f"about {wanted:.0f}."
    )
    _require(use, wanted, told)


def _require(use: UseView, wanted: float, told: str) -> None:
    if use.allowed is None or use.used + wanted <= use.allowed:
        return
    if use.room_at is None:
        raise NotAllowedError(f"{told} That is more than there will be room for; ask an organiser.")
    raise UsedUpError(
        f"{told} The quota resets at {use.room_at:%Y-%m-%d %H:%M:%S} UTC{NOTHING_KEPT}",
        measure=use.measure,
        retry_seconds=max(1, math.ceil((use.room_at - utc_now()).total_seconds())),
    )


def use_of_submissions(session: Session, user_id: int) -> UseView:
    """Count the submissions of the last 24 hours, without results published elsewhere."""
    allowed = _allowed(session, user_id, "submissions_per_day")
    query = (
        select(Submission.submitted_at)
        .where(
            Submission.user_id == user_id,
            Submission.submitted_at > utc_now() - DAY,
            Submission.evidence != "published",
        )
        .order_by(Submission.submitted_at.desc())
        .limit(MOST_COUNTED if allowed is None else max(allowed, 1))
    )
    moments = list(session.scalars(query))
    is_full = allowed is not None and len(moments) >= allowed
    # There is room once the oldest of as many as are allowed is a day old.
    room_at = moments[-1] + DAY if is_full and allowed else None
    return UseView(
        measure="submissions_per_day",
        allowed=allowed,
        used=len(moments) if allowed != 0 else 0,
        reserved=0.0,
        room_at=room_at,
    )


def use_of_gpu_seconds(session: Session, user_id: int, *, wanted: float = 0.0) -> UseView:
    """Add up accelerator seconds of 30 days. Verifications under way count their estimate."""
    allowed = _allowed(session, user_id, "gpu_seconds_per_month")
    spent = list(_spent(session, user_id))
    used = sum(each.gpu_seconds for each in spent)
    return UseView(
        measure="gpu_seconds_per_month",
        allowed=allowed,
        used=used,
        reserved=sum(each.gpu_seconds for each in spent if each.is_open),
        room_at=_room_at(spent, allowed=allowed, used=used, wanted=wanted),
    )


def _room_at(
    spent: Sequence[Spent], *, allowed: int | None, used: float, wanted: float
) -> datetime | None:
    """Find when enough of the use is more than 30 days ago."""
    if allowed is None or used + wanted <= allowed or wanted > allowed:
        return None
    left = used + wanted - allowed
    for each in spent:
        left -= each.gpu_seconds
        if left <= 0:
            return each.created_at + MONTH
    return None


def _spent(session: Session, user_id: int) -> Iterator[Spent]:
    now = utc_now()
    rows = session.execute(
        select(Verification.id, Verification.kind, Verification.state, Verification.created_at,
               Verification.gpu_seconds_reserved, Attempt.state.label("attempt"), Attempt.failure,
               Attempt.started_at, Attempt.ended_at, Attempt.accelerators)
        .outerjoin(Attempt, Attempt.verification_id == Verification.id)
        .where(Verification.requested_by == user_id,
               Verification.gpu_seconds_reserved.is_not(None),
               Verification.created_at > now - MONTH)
        .order_by(Verification.created_at, Verification.id)
    )  # fmt: skip
    for _, group in groupby(rows, key=lambda row: row.id):
        attempts = list(group)
        first = attempts[0]
        ran = sum(
            ((each.ended_at or now) - each.started_at).total_seconds()
            * devices(each.kind, each.accelerators or 0)
            for each in attempts
            if each.started_at is not None and counts(each.attempt, each.failure)
        )
        is_open = first.state in OPEN
        seconds = max(ran, first.gpu_seconds_reserved) if is_open else ran
        yield Spent(first.created_at, seconds, is_open)


def devices(kind: str, accelerators: int) -> int:
    """Count the charged devices of a worker: for code and for two sides a processor too."""
    purpose = PURPOSES[kind]
    return max(accelerators, 1) if purpose.in_box or purpose.claims == 2 else accelerators


def counts(state: str, failure: dict[str, Any] | None) -> bool:
    """Return whether an attempt counts against its submitter's quota."""
    if state == "failed":
        return failure is None or failure.get("kind") != "infrastructure"
    return state in ("running", "done")


def _no_text(value: Any) -> Any:
    if isinstance(value, (str, bool)):
        raise ValueError("expected a whole number, unlimited or default")
    return value


# Limit of a stored integer. A day has fewer submissions, a month fewer seconds.
Count = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_no_text)]
Amount = Count | Literal["unlimited", "default"]
ABSENT: Any = None  # A field may be left out, while null is refused.


class QuotaSet(Body):
    """Quotas to set. Omitted quotas stay. "default" is the value of the settings."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 2,  # A quota and the reason.
            "examples": [{"submissions_per_day": 5, "gpu_seconds_per_month": "unlimited",
                          "reason": "a course of 30"}]
        },
    )  # fmt: skip

    submissions_per_day: Amount = Field(default=ABSENT)
    gpu_seconds_per_month: Amount = Field(default=ABSENT)
    reason: Sentence


class Override(Schema):
    """Quotas set for a user by an organiser, by measure. Null is unlimited."""

    user: str
    quotas: dict[Measure, int | None]


class QuotaList(Schema):
    """Default quotas of each user, and every override."""

    defaults: dict[Measure, int | None]
    overrides: list[Override]


def quota_of(session: Session, user: User) -> QuotaView:
    """Return the quotas and the use of a user."""
    quotas = [use_of_submissions(session, user.id), use_of_gpu_seconds(session, user.id)]
    return QuotaView(user=user.name, quotas=quotas)


router = Routes(tags=["quotas"])
CONSOLE = "/console/quotas"
Name = Annotated[str, Path(max_length=100)]
# Units of a form's field in the units of the API.
EACH = {"submissions_per_day": 1, "gpu_seconds_per_month": 3600}


@router.read("/me/quota", role="user")
def get_my_quota(session: Session, caller: Caller) -> QuotaView:
    """Read your quotas of submissions and replays, your use, and when there is room again."""
    with seeing(session, ORGANISER):
        return quota_of(session, session.get_one(User, caller.user_id))


@router.read("/quotas", role="organiser")
def list_quotas(session: Session) -> QuotaList:
    """List the default quotas, and who may use more or less. For organisers."""
    users = session.scalars(select(User).where(User.quota.is_not(None)).order_by(User.name))
    return QuotaList(
        defaults=default_allowances(session),
        overrides=[Override(user=user.name, quotas=user.quota or {}) for user in users],
    )


@router.read("/quotas/{name}", role="organiser")
def get_quota(session: Session, name: Name) -> QuotaView:
    """Read the quotas and use of a user. For organisers."""
    return quota_of(session, find_user(session, name))


def _typed(fields: Fields) -> dict[str, int | str]:
    """Convert a form's fields to the API's units: hours to seconds. Other text stays."""
    typed: dict[str, int | str] = {**filled(fields)}
    typed.pop("user", None)
    for name, each in EACH.items():
        try:
            amount = float(typed.get(name, "")) * each
        except ValueError:
            continue
        # Parts of a second are rounded, parts of a submission are refused.
        if math.isfinite(amount) and (each > 1 or amount.is_integer()):
            typed[name] = round(amount)
    return typed


@router.command(
    "/quotas/{name}",
    Form(CONSOLE, "The quota of {0.user} is set.", asked={"name": "user"}, read=_typed),
    role="organiser",
    method="PUT",
)
def set_quota(session: Session, caller: Caller, name: Name, body: QuotaSet) -> QuotaView:
    """Set the quotas of a user, in force from the next request on. For organisers."""
    chosen = body.model_dump(include={*map(str, MEASURES)}, exclude_none=True)
    if not chosen:
        raise ContentError("Nothing to set: pass submissions_per_day or gpu_seconds_per_month.")
    user = find_user(session, name)
    kept = {name: most for name, most in (user.quota or {}).items() if name not in chosen}
    own = {
        name: None if amount == "unlimited" else amount
        for name, amount in chosen.items()
        if amount != "default"
    }
    with audited(session, caller, "quota.set", user, reason=body.reason):
        user.quota = kept | own or None
    return quota_of(session, user)
