"""Events between rooms: a lower room emits, rooms above it react in the same transaction.

`emit` calls listeners at once, in the order of `reactions`. An error in a listener ends the
transaction. A loop of this process is woken after the commit. Loops of other processes look every
interval.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Event
from typing import Any, Literal

from sqlalchemy.orm import Session

from server.base.database import after_commit, state_of
from server.base.models import Attempt, Calibration, Submission, Verification

VerificationMoment = Literal[
    "queued", "started", "lost", "done", "failed", "cancelled", "decision_published"
]
WorkerMoment = Literal["lost", "drifted", "paused", "refused"]
Listener = Callable[[Session, Any], None]
_listeners: dict[type, tuple[Listener, ...]] = {}


@dataclass(frozen=True)
class SubmissionAccepted:
    """A submitter's request stored a submission."""

    submission: Submission


@dataclass(frozen=True)
class VerificationWanted:
    """A policy wants a verification. Its submitter pays `reserved` accelerator seconds, if any."""

    submission: Submission
    requested_by: int
    reserved: float | None


@dataclass(frozen=True)
class SubmissionWithdrawn:
    """A submission was withdrawn, and the `verifications` that end with it are locked."""

    submission: Submission
    verifications: Sequence[str]


@dataclass(frozen=True)
class EmbargoLifted:
    """Hidden submissions are shown."""

    submission_ids: Sequence[str]


@dataclass(frozen=True)
class DuplicateMarked:
    """A submission became a duplicate of an earlier one."""

    submission: Submission


@dataclass(frozen=True)
class OriginalReplaced:
    """A duplicate took the place of its original."""

    submission: Submission
    original: Submission


@dataclass(frozen=True)
class StatusChanged:
    """A submission's status changed from `before`."""

    submission: Submission
    status: str
    before: str


@dataclass(frozen=True)
class VerificationChanged:
    """A moment in the life of a verification, and the attempt that it concerns."""

    verification: Verification
    moment: VerificationMoment
    attempt: Attempt | None = None


@dataclass(frozen=True)
class CalibrationAdopted:
    """A calibration starts to judge."""

    calibration: Calibration


@dataclass(frozen=True)
class WorkerOut:
    """A worker stopped taking work, for the reason `why`."""

    name: str
    moment: WorkerMoment
    why: str
    attempt_id: str | None = None


@dataclass(frozen=True)
class AuditDayEnded:
    """The last audit record of a day (UTC), emitted at the first record of a later day."""

    head_id: int
    sha256: str
    at: datetime


def emit(session: Session, event: object) -> None:
    """Call an event's listeners within the transaction of `session`."""
    for listener in _listeners.get(type(event), ()):
        listener(session, event)


def connect(listeners: Mapping[type, Sequence[Listener]]) -> None:
    """Set this process's listeners by event type, in the order of their calls."""
    _listeners.clear()
    _listeners.update({kind: tuple(called) for kind, called in listeners.items()})


class DispatchWakeup(Event):
    """Set when an attempt may be sent."""


class NoticeWakeup(Event):
    """Set when an event may be fanned out or a delivery started."""


def wake_after_commit(session: Session, wakeup: type[Event]) -> None:
    """Wake a loop after the commit of this transaction."""
    after_commit(session, state_of(session, wakeup).set)
