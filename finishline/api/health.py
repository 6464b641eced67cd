"""Response models of health and readiness."""

from typing import Literal

from pydantic import BaseModel

State = Literal["ok", "degraded", "failing"]


class HealthView(BaseModel):
    """The process answers, and which version it runs."""

    status: Literal["ok"] = "ok"
    version: str


class CheckView(BaseModel):
    """One check. Unless it is needed to take submissions it can be degraded, never failing."""

    name: str
    needed: bool
    state: State
    detail: str


class ReadinessView(BaseModel):
    """Outcome of all checks."""

    status: Literal["ready", "degraded", "not ready", "draining"]
    version: str
    checks: list[CheckView]
