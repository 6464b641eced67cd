"""What a worker is doing, seen by its threads."""

from dataclasses import dataclass
from typing import Literal


@dataclass
class WorkerState:
    """Flags. Plain booleans, because a signal handler sets one and may not take a lock.

    `out` is whether the server found this worker off its own baseline.
    """

    busy: bool = False
    stopping: bool = False
    out: bool = False

    def word(self) -> Literal["idle", "busy", "stopping"]:
        """The state as a hello tells it."""
        if self.stopping:
            return "stopping"
        return "busy" if self.busy else "idle"
