"""Start services in order, restart dead ones, stop all of them in reverse."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
# So many deaths within the window are too many. The wait doubles with each of them.
MOST_DEATHS, WINDOW_SECONDS = 5, 30.0
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.25, 8.0
PR_SET_CHILD_SUBREAPER = 36


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
    """A service and its present process. It is started again at `restart_at`.

    `deaths` are when its processes died lately, and `was_ready` is whether any ever answered.
    """

    service: Service
    process: "subprocess.Popen[bytes]"
    started_at: float
    started_wall: float
    is_ready: bool = False
    was_ready: bool = False
    restart_at: float | None = None
    deaths: list[float] = field(default_factory=list)


@dataclass
class Supervisor:
    """Keeps services running. `say` gets one line for everything it does.

    `stopped_by` is the first signal that asked to stop. Use it from the main thread: children die
    with the thread that started them.
    """

    say: Callable[[str], None]
    stop_asked: bool = False
    stopped_by: str | None = None
    _kept: list[_Kept] = field(default_factory=list)
    _running: set[int] = field(default_factory=set)
    _hurried: bool = False

    def listen_to_signals(self) -> None:
        """Stop on Ctrl-C, SIGTERM and a closed terminal. A second signal kills at once."""
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
        """Start a service and wait until it answers. Returns the seconds that took.

        Raises CliError if it cannot be started, StopAskedError if someone asked to stop.
        """
        began, started_wall = time.monotonic(), time.time()  # Before the process may answer.
        kept = _Kept(service, _launch(service), began, started_wall)
        self._kept.append(kept)
        while not kept.is_ready:
            self.tick()
            self._pause()
        seconds = time.monotonic() - began
        self.say(f"{service.name} is ready ({seconds:.1f} s), log {service.log}")
        return seconds

    def run(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run one command to its end while the services are kept. Returns its exit code.

        Its output goes to this process's own. Raises as `start` does.
        """
        process = spawn(command, environment=environment)
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
        service, now = kept.service, time.monotonic()
        if kept.restart_at is not None:
            if now >= kept.restart_at:
                kept.started_at, kept.started_wall, kept.restart_at = now, time.time(), None
                kept.process = _launch(service)
        elif kept.process.poll() is not None:
            self._bury(kept, now)
        elif not kept.is_ready and service.is_ready(kept.started_wall):
            if kept.was_ready:
                self.say(f"{service.name} is ready again")
            kept.is_ready = kept.was_ready = True
        elif not kept.is_ready and now - kept.started_at > service.ready_limit_seconds:
            if not kept.was_ready:
                said = last_line(service.log) or "it wrote nothing"
                limit = f"{service.ready_limit_seconds:g} s"
                raise _failed(service, f"did not respond within {limit} ({said})")
            self.say(f"{service.name} does not respond and is stopped")
            signal_group(kept.process.pid, signal.SIGKILL)

    def _bury(self, kept: _Kept, now: float) -> None:
        """Start a service again later that has died. Raises CliError if that is hopeless.

        A process that exits before it ever answered would end the same way each time.
        """
        service, code = kept.service, kept.process.returncode
        signal_group(kept.process.pid, signal.SIGKILL)
        self._end_orphans()
        kept.is_ready = False
        kept.deaths = [*(at for at in kept.deaths if now - at < WINDOW_SECONDS), now]
        count, said = len(kept.deaths), last_line(service.log)
        why = f"({ending(code)}{': ' + said if said else ''})"
        if count >= MOST_DEATHS:
            raise _failed(service, f"died {count} times in {WINDOW_SECONDS:g} s {why}")
        if code >= 0 and not kept.was_ready:
            raise _failed(service, f"could not start {why}")
        wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** (count - 1))
        kept.restart_at = now + wait
        how = f"died ({ending(code)})" if code else "exited without a request to stop (exit code 0)"
        self.say(f"{service.name} {how}; starting it again in {wait:.1f} s")

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
    with service.log.open("ab") as output:
        return spawn(
            service.command,
            environment=service.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            death_signal=service.death_signal,
        )


def _failed(service: Service, how: str) -> CliError:
    return CliError(f"{service.name} {how}; see {service.log}.", exit_code=ExitCode.SERVER)


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
