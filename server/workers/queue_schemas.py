"""The queue as the API and the pages show it."""

from datetime import datetime

from pydantic import BaseModel


class QueuedView(BaseModel):
    """An attempt that waits. `position` counts from 1 within its hardware class, in fair order.

    `expected_start` is by the median length of recent attempts of the same kind, benchmark and
    hardware class; None, with `why_unknown`, where there is nothing to go by. `attempt` is above 1
    where an earlier one failed at nobody's cost; `by_organiser`: an organiser asked for it.
    """

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


class PauseView(BaseModel):
    """Who paused a queue, since when and why."""

    by: str
    since: datetime
    reason: str


class ClassQueueView(BaseModel):
    """What waits for one hardware class, and who is there to take it.

    `hardware_class` is None for what any worker may take. `workers` are alive and in, `free` of
    these do nothing, `out` are alive but off their baseline, `held` are paused or drained.
    `last_seen_at` is when a worker of the class was last heard of, None if never. Where no worker
    of a class is connected any other takes its attempts, and times are not compared. `waiting` has
    the next of `waiting_count` to start. While it is `paused` nothing of the class
    starts. `under_embargo` of them have places of their own and are not shown.
    """

    hardware_class: str | None
    workers: int
    free: int
    out: int
    held: int
    paused: PauseView | None
    waiting_count: int
    last_seen_at: datetime | None
    waiting: list[QueuedView]
    under_embargo: int = 0


class QueueView(BaseModel):
    """Everything that waits for a worker, by hardware class; `as_of` is when that was so.

    `paused` is the pause of everything.
    """

    as_of: datetime
    waiting: int
    paused: PauseView | None
    classes: list[ClassQueueView]
