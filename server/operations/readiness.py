"""Health and readiness of this process: /healthz, /readyz, and draining before a stop.

Neither answer waits for a thread of those that serve requests: both hold when all of them hang.
"""

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal

from fastapi import APIRouter, Response

from server.base.code_version import VERSION
from server.base.services import ServicesDep
from server.operations.background_value import BackgroundValue
from server.operations.checks import Check, Finding, Said, UnwellError
from server.operations.health_views import CheckView, HealthView, ReadinessView, State

log = logging.getLogger(__name__)

KEEP_SECONDS = 1.0
LIMIT_SECONDS = 2.0


class Readiness:
    """The checks with their latest findings, and whether the process is about to stop."""

    def __init__(
        self,
        checks: Sequence[Check],
        *,
        keep_seconds: float = KEEP_SECONDS,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self._limit_seconds = limit_seconds
        self._checks = [
            (
                check,
                BackgroundValue(
                    check.ask,
                    name=f"check-{check.name}",
                    keep_seconds=keep_seconds,
                    limit_seconds=limit_seconds,
                ),
            )
            for check in checks
        ]
        self._states: dict[str, State] = {}
        self.is_draining = False

    async def look(self) -> list[Finding]:
        """Findings of all checks, which run at once."""
        return list(
            await asyncio.gather(*(self._find(check, kept) for check, kept in self._checks))
        )

    def is_ready(self, findings: Sequence[Finding]) -> bool:
        """Whether submissions can be taken."""
        return not self.is_draining and all(finding.state != "failing" for finding in findings)

    async def _find(self, check: Check, kept: BackgroundValue[Said]) -> Finding:
        cause: Exception | None = None
        try:
            said = await kept.get()
        except Exception as error:  # noqa: BLE001  Any error is a finding.
            cause = error
            said = Said(self._sentence(check, error), "failing" if check.needed else "degraded")
        self._note(check, said, cause)
        return Finding(check.name, check.needed, said.state, said.detail, said.figures)

    def _sentence(self, check: Check, error: Exception) -> str:
        """A sentence for anybody: an error of a driver names hosts, so the log alone has it."""
        if isinstance(error, UnwellError):
            return str(error)
        if isinstance(error, TimeoutError):
            return f"No response within {self._limit_seconds:g} s."
        return f"No response ({type(error).__name__})."

    def _note(self, check: Check, said: Said, cause: Exception | None) -> None:
        """Write a line where a check's state changes, and none while it stays."""
        before = self._states.get(check.name, "ok")
        self._states[check.name] = said.state
        if said.state == before:
            return
        level = logging.INFO if said.state == "ok" else logging.WARNING
        why = f" ({cause})" if cause is not None and str(cause) not in ("", said.detail) else ""
        log.log(level, "check %s is %s: %s%s", check.name, said.state, said.detail, why)


@contextmanager
def drained_before_stop(readiness: Readiness, *, drain_seconds: float) -> Iterator[None]:
    """Not ready from SIGTERM on; the server's own handler gets the signal `drain_seconds` later.

    A second SIGTERM stops at once. Where another program than a server runs the application, or
    not in the main thread, signals are left alone.
    """
    stop = signal.getsignal(signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(stop):
        yield
        readiness.is_draining = True
        return

    timers: list[threading.Timer] = []

    def drain(number: int, frame: FrameType | None) -> None:
        if readiness.is_draining or drain_seconds == 0:
            readiness.is_draining = True
            stop(number, frame)
            return
        readiness.is_draining = True
        timers.append(threading.Timer(drain_seconds, stop, (number, None)))
        timers[-1].daemon = True
        timers[-1].start()

    signal.signal(signal.SIGTERM, drain)
    try:
        yield
    finally:
        readiness.is_draining = True
        signal.signal(signal.SIGTERM, stop)
        for timer in timers:  # A second SIGTERM was faster.
            timer.cancel()


router = APIRouter(tags=["health"])
NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"description": "Submissions cannot be accepted; the same JSON gives the reasons."}
}


@router.get("/healthz")
async def check_health() -> HealthView:
    """200 while the process answers, whatever else is away: starting it again would not help."""
    return HealthView(version=VERSION)


@router.get("/readyz", responses=NOT_READY)
async def check_readiness(services: ServicesDep, response: Response) -> ReadinessView:
    """200 while submissions can be taken: the database and the artifact store answer.

    Without a broker or a worker the answer is 200 and "degraded": replays wait, nothing is lost.
    From the signal to stop on it is 503 and "draining".
    """
    readiness = services.of(Readiness)
    findings = await readiness.look()
    ready = readiness.is_ready(findings)
    if not ready:
        response.status_code = 503
    # Details may name a benchmark; the log has them too.
    is_told = services.settings.reads == "public"
    checks = [CheckView.of(found, detail=found.detail if is_told else "") for found in findings]
    status: Literal["ready", "degraded", "not ready", "draining"] = "not ready"
    if readiness.is_draining:
        status = "draining"
    elif ready:
        status = "ready" if all(found.state == "ok" for found in findings) else "degraded"
    return ReadinessView(status=status, version=VERSION, checks=checks)
