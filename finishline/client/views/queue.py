"""The queue of attempts that wait for a worker."""

from datetime import datetime

from finishline.client.views.view import View


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
    by_organiser: bool
    asked_at: datetime
    queued_at: datetime
    expected_start: datetime | None
    why_unknown: str | None


class Pause(View):
    """The pause of a queue: by whom, since when and why."""

    by: str
    since: datetime
    reason: str


class ClassQueue(View):
    """Queue of one hardware class, and its workers.

    `waiting` has the next of `waiting_count` to start.
    """

    hardware_class: str | None
    workers: int
    free: int
    out: int
    held: int
    paused: Pause | None
    waiting_count: int
    last_seen_at: datetime | None
    waiting: tuple[Queued, ...]
    under_embargo: int = 0


class Queue(View):
    """Waiting attempts by hardware class."""

    as_of: datetime
    waiting: int
    paused: Pause | None
    classes: tuple[ClassQueue, ...]
