"""Endpoints of quotas: read one's own; read and set everybody's as an organiser."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BeforeValidator, ConfigDict, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.people import Measure, QuotaView
from finishline.api.schema import Schema
from server.base.errors import ContentError
from server.base.forms import Body
from server.base.models import User
from server.base.services import ServicesDep
from server.base.settings import Settings
from server.base.viewer import ORGANISER
from server.people.audit import Subject, record
from server.people.dependencies import Caller, CallerDep, OrganiserDep
from server.people.users import find_user
from server.submissions.quotas import (
    MEASURES,
    allowances,
    default_allowances,
    use_of_gpu_seconds,
    use_of_submissions,
)


def _no_text(value: Any) -> Any:
    """Reject texts and booleans, which could be read as numbers."""
    if isinstance(value, (str, bool)):
        raise ValueError("expected a whole number, unlimited or default")
    return value


# Limit of a stored integer. A day has fewer submissions, a month fewer seconds.
Count = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_no_text)]
Amount = Count | Literal["unlimited", "default"]
ABSENT: Any = None  # A field may be left out, while null is refused.


class QuotaSet(Body):
    """Quotas to set. An absent one stays as it is. "default" is the value of the settings."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 2,  # A quota and the reason.
            "examples": [{"submissions_per_day": 5, "gpu_seconds_per_month": "unlimited",
                          "reason": "a course of 30"}]
        },
    )  # fmt: skip

    submissions_per_day: Amount = Field(default=ABSENT)
    gpu_seconds_per_month: Amount = Field(default=ABSENT)
    reason: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


class Override(Schema):
    """Quotas that an organiser set for a user, by measure. Null is no limit."""

    user: str
    quotas: dict[Measure, int | None]


class QuotaList(Schema):
    """Default quotas of each user, and every override."""

    defaults: dict[Measure, int | None]
    overrides: list[Override]


def quota_of(session: Session, settings: Settings, user: User) -> QuotaView:
    """Quotas and use of a user."""
    allowed = allowances(session, settings, user.id)
    uses = [
        use_of_submissions(session, user.id, allowed=allowed["submissions_per_day"]),
        use_of_gpu_seconds(session, user.id, allowed=allowed["gpu_seconds_per_month"]),
    ]
    return QuotaView(user=user.name, quotas=uses)


def read_quotas(session: Session, settings: Settings) -> QuotaList:
    """Default quotas and every override."""
    users = session.scalars(select(User).where(User.quota.is_not(None)).order_by(User.name))
    return QuotaList(
        defaults=default_allowances(settings),
        overrides=[Override(user=user.name, quotas=user.quota or {}) for user in users],
    )


def change_quota(session: Session, caller: Caller, name: str, wanted: QuotaSet) -> None:
    """Set the quotas of a user. Written to the audit log."""
    if wanted.submissions_per_day is None and wanted.gpu_seconds_per_month is None:
        raise ContentError("Nothing to set: pass submissions_per_day or gpu_seconds_per_month.")
    user = find_user(session, name)
    before = user.quota or {}
    after = dict(before)
    for measure in MEASURES:
        amount = getattr(wanted, measure)
        if amount == "default":
            after.pop(measure, None)
        elif amount is not None:
            after[measure] = None if amount == "unlimited" else amount
    user.quota = after or None
    record(
        session,
        caller,
        "quota.set",
        Subject("user", name),
        reason=wanted.reason,
        before=_logged(before),
        after=_logged(after),
    )


def _logged(override: dict[str, int | None]) -> dict[str, Any]:
    named = {name: override.get(name, "default") for name in MEASURES}
    return {name: "unlimited" if amount is None else amount for name, amount in named.items()}


router = APIRouter(tags=["quotas"])
NameDep = Annotated[str, Path(max_length=100)]


@router.get("/me/quota")
def get_my_quota(services: ServicesDep, caller: CallerDep) -> QuotaView:
    """Read your quotas of submissions and replays, your use, and when there is room again."""
    with services.database.read(ORGANISER) as session:
        return quota_of(session, services.settings, session.get_one(User, caller.user_id))


@router.get("/quotas")
def list_quotas(services: ServicesDep, _caller: OrganiserDep) -> QuotaList:
    """List the default quotas, and who may use more or less. For organisers."""
    with services.database.read(ORGANISER) as session:
        return read_quotas(session, services.settings)


@router.get("/quotas/{name}")
def get_quota(name: NameDep, services: ServicesDep, _caller: OrganiserDep) -> QuotaView:
    """Read the quotas and use of a user. For organisers."""
    with services.database.read(ORGANISER) as session:
        return quota_of(session, services.settings, find_user(session, name))


@router.put("/quotas/{name}")
def set_quota(
    name: NameDep, body: QuotaSet, services: ServicesDep, caller: OrganiserDep
) -> QuotaView:
    """Set the quotas of a user, in force from the next request on. For organisers."""
    with services.database.write() as session:
        change_quota(session, caller, name, body)
        return quota_of(session, services.settings, find_user(session, name))
