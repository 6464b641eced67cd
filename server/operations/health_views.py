"""Response models of health and readiness."""

from typing import Literal

from finishline.api.schema import Schema

State = Literal["ok", "degraded", "failing"]


class HealthView(Schema):
    """The process answers, and which version it runs."""

    status: Literal["ok"] = "ok"
    version: str


class CheckView(Schema):
    """One check. Unless it is needed to take submissions it can be degraded, never failing."""

    name: str
    needed: bool
    state: State
    detail: str


class ReadinessView(Schema):
    """Outcome of all checks."""

    status: Literal["ready", "degraded", "not ready", "draining"]
    version: str
    checks: list[CheckView]
