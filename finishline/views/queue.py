"""What waits for a worker."""

from datetime import datetime

from finishline.views.view import View


class Queued(View):
    """An attempt that waits for a worker."""

    verification_id: str
    kind: str
    benchmark: str
    submission_id: str | None
    model: str | None
    runs: int
    attempt: int
    position: int
    asked_at: datetime
    queued_at: datetime
    expected_start: datetime | None
    why_unknown: str | None


class ClassQueue(View):
    """What waits for one hardware class, and who is there to take it."""

    hardware_class: str | None
    workers: int
    free: int
    out: int
    last_seen_at: datetime | None
    waiting: tuple[Queued, ...]
    under_embargo: int = 0


class Queue(View):
    """Everything that waits for a worker, by hardware class."""

    as_of: datetime
    waiting: int
    classes: tuple[ClassQueue, ...]
