"""Start services in order, restart dead ones, stop all of them in reverse."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import psutil  # type: ignore[import-untyped,unused-ignore]

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.processes import adopt_orphans, reap_orphans, signal_group, spawn
from server.commands.lifecycle import (
    Lifecycle,
    Phase,
    RestartPolicy,
    ending,
    ending_in_words,
    first_start,
    last_line,
)

TICK_SECONDS = 0.1
STOP_SIGNALS = [
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]  # Windows has no SIGHUP.


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
        adopt_orphans()
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._hurried = self.stop_asked
        self.stop_asked = True
        self.stopped_by = self.stopped_by or signal.Signals(number).name

    def pids(self) -> dict[str, int]:
        """The process of each service."""
        return {kept.service.name: kept.process.pid for kept in self._kept}

    def start(self, service: Service) -> float:
        """Start a service and wait until it answers; the seconds that took.

        Raises CliError if it cannot be started, StopAskedError if someone asked to stop.
        """
        began = time.monotonic()
        # Read before the process is there: it may answer before this one goes on.
        started_wall = time.time()
        kept = _Kept(service, _launch(service), first_start(began), started_wall)
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
        reap_orphans(self._own())

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
                raise _never_answered(kept.service)
            self.say(f"{kept.service.name} does not respond and is stopped")
            signal_group(kept.process.pid, signal.SIGKILL)

    def _bury(self, kept: _Kept, now: float) -> None:
        code, name = kept.process.returncode, kept.service.name
        signal_group(kept.process.pid, signal.SIGKILL)
        self._end_orphans()
        kept.life = kept.life.died(now, self.policy, on_its_own=code >= 0)
        if kept.life.phase is Phase.GIVEN_UP:
            raise _given_up(kept, self.policy)
        how = ending_in_words(code)
        self.say(f"{name} {how}; starting it again in {kept.life.restart_at - now:.1f} s")

    def stop(self) -> None:
        """Stop every service in reverse order, then their orphans."""
        self.stop_asked = True
        while self._kept:
            kept = self._kept.pop()
            self._end(
                kept.service.name, kept.process, limit_seconds=kept.service.stop_limit_seconds
            )
            self.say(f"{kept.service.name} stopped")
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
    if log is None:
        return spawn(command, environment=environment, death_signal=death_signal)
    with log.open("ab") as output:
        return spawn(
            command,
            environment=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
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


def _never_answered(service: Service) -> CliError:
    return CliError(
        f"{service.name} did not respond within {service.ready_limit_seconds:g} s "
        f"({last_line(service.log) or 'it wrote nothing'}); see {service.log}.",
        exit_code=ExitCode.SERVER,
    )
