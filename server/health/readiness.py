"""Whether this process can do its work: every check, asked seldom and within a limit."""

import asyncio
import logging
from collections.abc import Sequence

from server.health.checks import Check
from server.health.findings import Finding, Said, State, UnwellError
from server.observability.kept import Kept

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
                Kept(
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
        """What every check finds; all are asked at once."""
        return list(
            await asyncio.gather(*(self._find(check, kept) for check, kept in self._checks))
        )

    def is_ready(self, findings: Sequence[Finding]) -> bool:
        """Whether submissions can be taken."""
        return not self.is_draining and all(finding.state != "failing" for finding in findings)

    async def _find(self, check: Check, kept: Kept[Said]) -> Finding:
        cause: Exception | None = None
        try:
            said = await kept.get()
        except Exception as error:  # noqa: BLE001  Whatever it is, this is what was to be found.
            cause = error
            said = Said(self._sentence(check, error), "failing" if check.needed else "degraded")
        self._note(check, said, cause)
        return Finding(check.name, check.needed, said.state, said.detail, said.figures)

    def _sentence(self, check: Check, error: Exception) -> str:
        """What may be shown to anybody: an error of a driver names hosts, the log has it."""
        if isinstance(error, UnwellError):
            return str(error)
        if isinstance(error, TimeoutError):
            return f"No answer within {self._limit_seconds:g} s."
        return f"No answer ({type(error).__name__})."

    def _note(self, check: Check, said: Said, cause: Exception | None) -> None:
        """Write a line where a check's state changes, and none while it stays."""
        before = self._states.get(check.name, "ok")
        self._states[check.name] = said.state
        if said.state == before:
            return
        level = logging.INFO if said.state == "ok" else logging.WARNING
        why = f" ({cause})" if cause is not None and str(cause) not in ("", said.detail) else ""
        log.log(level, "check %s is %s: %s%s", check.name, said.state, said.detail, why)
