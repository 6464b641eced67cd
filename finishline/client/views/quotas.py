"""What somebody may use, and what they used of it."""

from datetime import datetime

from finishline.client.views.view import View


class Use(View):
    """What is used of one quota; `allowed` is None where there is no limit.

    `measure` is submissions_per_day or gpu_seconds_per_month. `reserved`, part of `used`, is what
    verifications under way will probably take.
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
