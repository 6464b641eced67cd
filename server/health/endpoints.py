"""Is the process alive, and can it do its work?

Neither answer waits for a thread of those that serve requests: both hold when all of them hang.
"""

from importlib.metadata import version
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from server.health.findings import State
from server.health.readiness import Readiness

router = APIRouter(tags=["health"])
VERSION = version("finishline")  # Read from the files of the installation, once.
NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"description": "Submissions cannot be taken here; the same JSON says why."}
}


class HealthView(BaseModel):
    """The process answers, and which version it runs."""

    status: Literal["ok"] = "ok"
    version: str


class CheckView(BaseModel):
    """One check. What is not needed to take submissions can be degraded, never failing."""

    name: str
    needed: bool
    state: State
    detail: str


class ReadinessView(BaseModel):
    """What works and what does not."""

    status: Literal["ready", "degraded", "not ready", "draining"]
    version: str
    checks: list[CheckView]


@router.get("/healthz")
async def healthz() -> HealthView:
    """200 while the process answers, whatever else is away: starting it again would not help."""
    return HealthView(version=VERSION)


@router.get("/readyz", responses=NOT_READY)
async def readyz(request: Request, response: Response) -> ReadinessView:
    """200 while submissions can be taken: the database and the artifact store answer.

    Without a broker or a worker the answer is 200 and "degraded": replays wait, nothing is lost.
    From the signal to stop on it is 503 and "draining".
    """
    readiness: Readiness = request.app.state.readiness
    findings = await readiness.look()
    ready = readiness.is_ready(findings)
    if not ready:
        response.status_code = 503
    checks = [
        CheckView(name=found.name, needed=found.needed, state=found.state, detail=found.detail)
        for found in findings
    ]
    status: Literal["ready", "degraded", "not ready", "draining"] = "not ready"
    if readiness.is_draining:
        status = "draining"
    elif ready:
        status = "ready" if all(found.state == "ok" for found in findings) else "degraded"
    return ReadinessView(status=status, version=VERSION, checks=checks)
