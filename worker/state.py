"""What a worker is doing, seen by its threads."""

from dataclasses import dataclass

from finishline.rules.verification.messages import WorkerWord

REFUSED_EXIT_CODE = 3


@dataclass
class WorkerState:
    """Flags. Plain booleans, because a signal handler sets one and may not take a lock.

    `out` is whether the server found this worker off its own baseline; `paused` and `drained` are
    what an organiser wants of it. `leave_by`, on time.monotonic(), is until when it may finish
    what it is at since its own operator told it to stop. `refused` is the server's sentence where
    it refuses this worker's token: the worker ends. `roof_wanted` is whether the server knows no
    roof of this worker's hardware class.
    """

    busy: bool = False
    stopping: bool = False
    out: bool = False
    paused: bool = False
    drained: bool = False
    leave_by: float | None = None
    refused: str | None = None
    roof_wanted: bool = False

    @property
    def exit_code(self) -> int:
        """What the process ends with if all else went well."""
        return REFUSED_EXIT_CODE if self.refused is not None else 0

    @property
    def takes_nothing(self) -> bool:
        """Whether messages are left in their queue, for the worker beside it."""
        return self.out or self.paused or self.drained

    def word(self) -> WorkerWord:
        """The state as a hello tells it."""
        if self.stopping:
            return "stopping"
        if self.leave_by is not None:
            return "draining"
        return "busy" if self.busy else "idle"
