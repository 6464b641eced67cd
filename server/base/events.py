"""Events between rooms: a lower room emits, rooms above it react in the same transaction.

A listener is called at once, in the order in which `reactions` lists them. An error in it ends the
transaction that emitted. A loop of this process is woken once something is committed that it may
act on. Other processes hear nothing of it: theirs look by themselves every interval.
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
    """A submission was stored by one of its submitter's requests."""

    submission: Submission


@dataclass(frozen=True)
class VerificationWanted:
    """A benchmark wants a submission verified by policy.

    `reserved` seconds of accelerators are charged to who submitted it. None of an organiser.
    """

    submission: Submission
    requested_by: int
    reserved: float | None


@dataclass(frozen=True)
class SubmissionWithdrawn:
    """A submission was withdrawn. Its `verifications` that end with it are locked."""

    submission: Submission
    verifications: Sequence[str]


@dataclass(frozen=True)
class EmbargoLifted:
    """Submissions that were hidden are shown."""

    submission_ids: Sequence[str]


@dataclass(frozen=True)
class DuplicateMarked:
    """A submission became a duplicate of an earlier one."""

    submission: Submission


@dataclass(frozen=True)
class OriginalReplaced:
    """A submission that was a duplicate took the place of its original."""

    submission: Submission
    original: Submission


@dataclass(frozen=True)
class StatusChanged:
    """A submission comes to a status from the one `before`."""

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
    """A calibration judges from now on."""

    calibration: Calibration


@dataclass(frozen=True)
class WorkerOut:
    """A worker takes nothing any more, for a reason."""

    name: str
    moment: WorkerMoment
    why: str
    attempt_id: str | None = None


@dataclass(frozen=True)
class AuditDayEnded:
    """The last record of the audit log of a day (UTC), as the first one of a later day follows."""

    head_id: int
    sha256: str
    at: datetime


def emit(session: Session, event: object) -> None:
    """Call the listeners of an event, within the transaction of `session`."""
    for listener in _listeners.get(type(event), ()):
        listener(session, event)


def connect(listeners: Mapping[type, Sequence[Listener]]) -> None:
    """Set the listeners of this process by the type of their event, in the order of their calls."""
    _listeners.clear()
    _listeners.update({kind: tuple(called) for kind, called in listeners.items()})


class DispatchWakeup(Event):
    """Set when an attempt may be sent."""


class NoticeWakeup(Event):
    """Set when an event may be fanned out or a delivery started."""


def wake_after_commit(session: Session, wakeup: type[Event]) -> None:
    """Set a loop's event once this transaction is committed. Never if it is rolled back."""
    after_commit(session, state_of(session, wakeup).set)
