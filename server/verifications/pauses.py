"""Pauses of queues: single ones, or all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.models import QueueRow

EVERY_QUEUE = "*"


@dataclass(frozen=True)
class Pause:
    """A pause: who set it, since when and why."""

    by: str
    since: datetime
    reason: str

    def sentence(self, what: str) -> str:
        """Sentence about the pause, for those who wait."""
        return f"{what} paused by {self.by}: {self.reason}"


@dataclass(frozen=True)
class Pauses:
    """Pauses of hardware classes by name, and of everything."""

    classes: Mapping[str, Pause]
    everything: Pause | None

    def of(self, hardware_class: str | None) -> Pause | None:
        """Pause of a hardware class, None for any; a pause of everything comes first."""
        if self.everything is not None or hardware_class is None:
            return self.everything
        return self.classes.get(hardware_class)

    def why(self, hardware_class: str | None) -> str | None:
        """Sentence that explains why a hardware class is paused; None if it is not."""
        if self.everything is not None:
            return self.everything.sentence("every queue is")
        pause = self.of(hardware_class)
        return None if pause is None else pause.sentence(f"the queue of {hardware_class} is")


def read_pauses(session: Session) -> Pauses:
    """Read every pause."""
    rows = session.execute(
        select(
            QueueRow.hardware_class, QueueRow.paused_by, QueueRow.paused_at, QueueRow.paused_because
        ).where(QueueRow.paused_at.is_not(None))
    )
    paused = {
        row.hardware_class: Pause(row.paused_by, row.paused_at, row.paused_because) for row in rows
    }
    return Pauses(
        {name: pause for name, pause in paused.items() if name != EVERY_QUEUE},
        paused.get(EVERY_QUEUE),
    )
