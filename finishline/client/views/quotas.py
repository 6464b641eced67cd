"""Quotas of a user, and their use."""

from datetime import datetime

from finishline.client.views.view import View


class Use(View):
    """Use of one quota; `allowed` is None where there is no limit.

    `measure` is submissions_per_day or gpu_seconds_per_month. `reserved`, part of `used`, is the
    probable use by verifications under way.
    """

    measure: str
    allowed: int | None
    used: float
    reserved: float
    room_at: datetime | None


class Quota(View):
    """The quotas of a user, or those of all submitters of a benchmark together."""

    subject_kind: str
    subject: str
    quotas: tuple[Use, ...]


class MyQuota(Quota):
    """Your own quotas, and those of benchmarks that have any."""

    benchmarks: tuple[Quota, ...]
