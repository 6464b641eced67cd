"""Request and response models of queues, and of holds of workers and queues."""

from datetime import datetime

from pydantic import ConfigDict, Field

from finishline.api.schema import Schema


class QueuedView(Schema):
    """A queued attempt. `position` counts from 1 within its hardware class, in fair order.

    `expected_start` is by the median length of recent attempts of the same kind, benchmark and
    hardware class; None, with `why_unknown`, without a basis for it. `attempt` is above 1 if an
    earlier one failed without charge to a quota; `by_organiser`: an organiser requested it.
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


class PauseView(Schema):
    """The pause of everything: who set it, since when and why."""

    model_config = ConfigDict(from_attributes=True)

    by: str
    since: datetime
    reason: str


class ClassQueueView(Schema):
    """Queue of one hardware class, and the workers of the class.

    `hardware_class` is None for attempts that any worker may take. `workers` are alive and fit,
    `free` counts the idle ones of these, `out` are alive but off their baseline, `held` are paused.
    `last_seen_at` is the last hello of a worker of the class, None if never. If no
    worker of a class is connected, any other takes its attempts, and times are not compared.
    `waiting` has the next of `waiting_count` to start. `under_embargo` of them have places of their
    own and are not shown.
    """

    hardware_class: str | None
    workers: int
    free: int
    out: int
    held: int
    waiting_count: int
    last_seen_at: datetime | None
    waiting: list[QueuedView]
    under_embargo: int = 0


class QueueView(Schema):
    """Queue of all attempts by hardware class; `as_of` is the time of the snapshot.

    While it is `paused`, no attempt starts.
    """

    as_of: datetime
    waiting: int
    paused: PauseView | None
    classes: list[ClassQueueView]


LONGEST_REASON = 2000
REASON = r"\S"


class Hold(Schema):
    """Reason to pause a worker or everything; shown with it and kept."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "new fans on Saturday"}]}
    )

    reason: str = Field(min_length=1, max_length=LONGEST_REASON, pattern=REASON)


class Resume(Schema):
    """Reason to resume, optional."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}]})

    reason: str | None = Field(default=None, max_length=LONGEST_REASON)
