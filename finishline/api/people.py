"""The caller's account and quotas."""

from datetime import datetime
from typing import Literal

from finishline.api.schema import Name, Schema

Role = Literal["submitter", "organiser", "admin", "worker"]


class MeView(Schema):
    """User, role and expiry of this request's token.

    `role` is the token's, `highest_role` the highest for tokens of this user.
    """

    user: Name
    display_name: str | None = None
    organisation: Name | None
    email: str | None
    highest_role: str
    token_id: int
    label: str | None
    role: str
    expires_at: datetime | None


Measure = Literal["submissions_per_day", "gpu_seconds_per_month"]


class UseView(Schema):
    """Use of one quota. `allowed` is null without a limit.

    Submissions count for 24 hours, accelerator seconds for 30 days. `reserved`, part of `used`, is
    the estimate for running verifications. `room_at` is when there is room again.
    """

    measure: Measure
    allowed: int | None
    used: float
    reserved: float
    room_at: datetime | None


class QuotaView(Schema):
    """Quotas and use of a user."""

    user: str
    quotas: list[UseView]
