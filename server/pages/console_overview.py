"""The console's first page: what needs an organiser, each with the next step."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from server.pages.console_lists import (
    failed_attempts,
    open_calibrations,
    pending_verdicts,
    under_way,
    workers_out,
)
from server.pages.console_page import console_page
from server.people.accounts import ORGANISERS
from server.people.dependencies import PartsDep
from server.people.signed_in import SignedInDep, viewer_for

router = APIRouter(include_in_schema=False)


@router.get("/console")
def overview(parts: PartsDep, signed_in: SignedInDep) -> Response:
    """What waits; whoever is no organiser is led to their own account."""
    if signed_in.caller.role not in ORGANISERS:
        return RedirectResponse("/console/account", status_code=303)
    alive = parts.settings.worker_alive_seconds
    with parts.database.read(viewer_for(signed_in.caller)) as session:
        context: dict[str, Any] = {
            "pending": pending_verdicts(session),
            "under_way": under_way(session, alive_seconds=alive),
            "out": workers_out(session, alive_seconds=alive),
            "failed": failed_attempts(session),
            "calibrations": open_calibrations(session, parts.benchmarks),
        }
    return console_page(parts, signed_in, "overview.html", **context)
