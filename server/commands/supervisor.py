"""Start services in order, restart dead ones, stop all of them in reverse."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import FrameType

import psutil  # type: ignore[import-untyped,unused-ignore]

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.processes import signal_group, spawn

TICK_SECONDS = 0.1
STOP_SIGNALS = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]  # Windows has no SIGHUP.
TAIL_BYTES = 8192
PR_SET_CHILD_SUBREAPER = 36


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
        return replace(self, phase=Phase.STARTING, started_at=now)

    def answered(self) -> "Lifecycle":
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
        return self.phase is Phase.WAITING and now >= self.restart_at


@dataclass(frozen=True)
class Service:
    """A process to keep running, and how to tell that it answers.

    `is_ready` gets the time (as time.time()) its process started, so that an answer left over from
    an earlier process can be told apart.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    is_ready: Callable[[float], bool]
    ready_limit_seconds: float = 60.0
    stop_limit_seconds: float = 10.0
    death_signal: signal.Signals = signal.SIGTERM


class StopAskedError(Exception):
    """Someone asked the supervisor to stop while it was busy with something else."""


@dataclass
class _Kept:
    service: Service
    process: "subprocess.Popen[bytes]"
    life: Lifecycle
    started_wall: float


@dataclass
class Supervisor:
    """Keeps services running; `say` gets one line for everything it does.

    `stopped_by` is the first signal that asked to stop. Use it from the main thread: children die
    with the thread that started them.
    """

    say: Callable[[str], None]
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    stop_asked: bool = False
    stopped_by: str | None = None
    _kept: list[_Kept] = field(default_factory=list)
    _running: set[int] = field(default_factory=set)
    _hurried: bool = False

    def listen_to_signals(self) -> None:
        """Stop on Ctrl-C, SIGTERM and a closed terminal; a second signal kills at once."""
        if sys.platform == "linux":
            # Orphaned descendants become children of this process, so that they can be ended.
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._hurried = self.stop_asked
        self.stop_asked = True
        self.stopped_by = self.stopped_by or signal.Signals(number).name

    def pids(self) -> dict[str, int]:
        return {kept.service.name: kept.process.pid for kept in self._kept}

    def start(self, service: Service) -> float:
        """Start a service and wait until it answers; the seconds that took.

        Raises CliError if it cannot be started, StopAskedError if someone asked to stop.
        """
        began = time.monotonic()
        # Read before the process is there: it may answer before this one goes on.
        started_wall = time.time()
        kept = _Kept(service, _launch(service), Lifecycle(Phase.STARTING, began), started_wall)
        self._kept.append(kept)
        while kept.life.phase is not Phase.READY:
            self.tick()
            self._pause()
        seconds = time.monotonic() - began
        self.say(f"{service.name} is ready ({seconds:.1f} s), log {service.log}")
        return seconds

    def run(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path | None
    ) -> int:
        """Run one command to its end while the services are kept; its exit code.

        Its output goes to `log`, or to this process's own with None. Raises as `start` does.
        """
        process = _open(command, environment, log, signal.SIGTERM)
        self._running.add(process.pid)
        try:
            while process.poll() is None:
                self.tick()
                self._pause()
        finally:
            self._end(name, process, limit_seconds=5.0)
            self._running.discard(process.pid)
        return process.returncode

    def keep(self) -> None:
        """Keep the services until someone asks to stop. Raises CliError if one is given up."""
        with suppress(StopAskedError):
            while True:
                self.tick()
                self._pause()

    def tick(self) -> None:
        """Look at every service once, take the steps due, and reap what boxes left."""
        for kept in self._kept:
            self._look_at(kept)
        if sys.platform == "linux":
            self._reap_orphans()

    def _pause(self) -> None:
        if self.stop_asked:
            raise StopAskedError
        time.sleep(TICK_SECONDS)
        if self.stop_asked:
            raise StopAskedError

    def _look_at(self, kept: _Kept) -> None:
        now = time.monotonic()
        if kept.life.is_due(now):
            kept.started_wall = time.time()
            kept.process = _launch(kept.service)
            kept.life = kept.life.started(now)
        elif kept.life.phase is not Phase.WAITING and kept.process.poll() is not None:
            self._bury(kept, now)
        elif kept.life.phase is Phase.STARTING:
            self._await(kept, now)

    def _await(self, kept: _Kept, now: float) -> None:
        if kept.service.is_ready(kept.started_wall):
            again = kept.life.was_ready
            kept.life = kept.life.answered()
            if again:
                self.say(f"{kept.service.name} is ready again")
        elif now - kept.life.started_at > kept.service.ready_limit_seconds:
            if not kept.life.was_ready:
                service, said = kept.service, last_line(kept.service.log) or "it wrote nothing"
                raise CliError(
                    f"{service.name} did not respond within {service.ready_limit_seconds:g} s "
                    f"({said}); see {service.log}.",
                    exit_code=ExitCode.SERVER,
                )
            self.say(f"{kept.service.name} does not respond and is stopped")
            signal_group(kept.process.pid, signal.SIGKILL)

    def _bury(self, kept: _Kept, now: float) -> None:
        code, name = kept.process.returncode, kept.service.name
        signal_group(kept.process.pid, signal.SIGKILL)
        self._end_orphans()
        kept.life = kept.life.died(now, self.policy, on_its_own=code >= 0)
        if kept.life.phase is Phase.GIVEN_UP:
            raise _given_up(kept, self.policy)
        how = f"died ({ending(code)})" if code else "exited without a request to stop (exit code 0)"
        self.say(f"{name} {how}; starting it again in {kept.life.restart_at - now:.1f} s")

    def stop(self) -> None:
        """Stop every service in reverse order, then their orphans."""
        self.stop_asked = True
        while self._kept:
            kept = self._kept.pop()
            service = kept.service
            self._end(service.name, kept.process, limit_seconds=service.stop_limit_seconds)
            self.say(f"{service.name} stopped")
        self._end_orphans()

    def _end(self, name: str, process: "subprocess.Popen[bytes]", *, limit_seconds: float) -> None:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                process.terminate()
        deadline = time.monotonic() + limit_seconds
        while process.poll() is None and not self._hurried and time.monotonic() < deadline:
            time.sleep(TICK_SECONDS / 2)
        if process.poll() is None and not self._hurried:
            self.say(f"{name} did not stop within {limit_seconds:g} s and is killed")
        signal_group(process.pid, signal.SIGKILL)
        process.wait()

    def _own(self) -> set[int]:
        return {kept.process.pid for kept in self._kept} | self._running

    def _reap_orphans(self) -> None:
        """Forget the orphans that have ended: each box leaves one, and it keeps its number."""
        own = self._own()
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in own:
                    return
                os.waitpid(ended.si_pid, 0)

    def _end_orphans(self) -> None:
        """Kill and reap the orphans of the services' dead processes."""
        own = self._own()
        # A killed orphan's children come up as orphans in the next round.
        while orphans := [c for c in psutil.Process().children() if c.pid not in own]:
            for orphan in orphans:
                with suppress(psutil.NoSuchProcess):
                    orphan.kill()
                with suppress(ChildProcessError):
                    os.waitpid(orphan.pid, 0)


def _launch(service: Service) -> "subprocess.Popen[bytes]":
    return _open(service.command, service.environment, service.log, service.death_signal)


def _open(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path | None,
    death_signal: signal.Signals,
) -> "subprocess.Popen[bytes]":
    with nullcontext() if log is None else log.open("ab") as output:
        return spawn(
            command,
            environment=environment,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            death_signal=death_signal,
        )


def _given_up(kept: _Kept, policy: RestartPolicy) -> CliError:
    service, how_it_ended = kept.service, ending(kept.process.returncode)
    said = last_line(service.log)
    how = (
        f"{service.name} died {len(kept.life.deaths)} times in {policy.window_seconds:g} s"
        if len(kept.life.deaths) > 1
        else f"{service.name} could not start"
    )
    return CliError(
        f"{how} ({how_it_ended}{': ' + said if said else ''}); see {service.log}.",
        exit_code=ExitCode.SERVER,
    )


def ending(code: int) -> str:
    """An exit code, or the name of the signal that a process died of."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def last_line(log: Path) -> str:
    """The last line of a log that holds something."""
    lines: list[str] = []
    with suppress(OSError), log.open("rb") as written:
        written.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = written.read().decode(errors="replace").splitlines()
    return next((line.strip()[:600] for line in reversed(lines) if line.strip()), "")
