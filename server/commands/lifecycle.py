"""The services of `finishline up`: how they are started, ended and reported."""

import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path


class Phase(StrEnum):
    """Phase in the life of a service."""

    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"  # It died and is started again at `restart_at`.
    GIVEN_UP = "given_up"


@dataclass(frozen=True)
class RestartPolicy:
    """Limits on a service's deaths, and the wait before it is started again.

    `max_deaths` deaths within `window_seconds` are too many. The wait doubles with each of them.
    """

    max_deaths: int = 5
    window_seconds: float = 30.0
    first_wait_seconds: float = 0.25
    longest_wait_seconds: float = 8.0

    def wait_seconds(self, recent_deaths: int) -> float:
        """The wait after that many recent deaths."""
        doubled = self.first_wait_seconds * 2.0 ** (recent_deaths - 1)
        return min(self.longest_wait_seconds, doubled)


@dataclass(frozen=True)
class Lifecycle:
    """The life of one service so far; `now` counts seconds on any steady clock.

    `started_at` is when its present process started, `was_ready` whether any process of it ever
    answered, `deaths` when its processes died, within the policy's window.
    """

    phase: Phase
    started_at: float
    was_ready: bool = False
    restart_at: float = 0.0
    deaths: tuple[float, ...] = ()

    def started(self, now: float) -> "Lifecycle":
        """A new process was started."""
        return replace(self, phase=Phase.STARTING, started_at=now)

    def answered(self) -> "Lifecycle":
        """The process answered for the first time."""
        return replace(self, phase=Phase.READY, was_ready=True)

    def died(self, now: float, policy: RestartPolicy, *, on_its_own: bool) -> "Lifecycle":
        """The process ended.

        One that exits on its own before the service ever answered cannot start at all: another
        try would end the same way, so it is given up at once.
        """
        recent = (*(at for at in self.deaths if now - at < policy.window_seconds), now)
        hopeless = on_its_own and not self.was_ready
        if hopeless or len(recent) >= policy.max_deaths:
            return replace(self, phase=Phase.GIVEN_UP, deaths=recent)
        restart_at = now + policy.wait_seconds(len(recent))
        return replace(self, phase=Phase.WAITING, deaths=recent, restart_at=restart_at)

    def is_due(self, now: float) -> bool:
        """Whether it is time to start it again."""
        return self.phase is Phase.WAITING and now >= self.restart_at


def first_start(now: float) -> Lifecycle:
    """A service with its first process just started."""
    return Lifecycle(phase=Phase.STARTING, started_at=now)


TAIL_BYTES = 8192


def ending(code: int) -> str:
    """An exit code, or the name of the signal that a process died of."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def ending_in_words(code: int) -> str:
    """Describe the end of a process."""
    return f"died ({ending(code)})" if code else "exited without a request to stop (exit code 0)"


def last_line(log: Path) -> str:
    """The last line of a log that holds something."""
    lines: list[str] = []
    with suppress(OSError), log.open("rb") as written:
        written.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = written.read().decode(errors="replace").splitlines()
    return next((line.strip()[:600] for line in reversed(lines) if line.strip()), "")
