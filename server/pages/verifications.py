"""A verification's page, live while it runs."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from server.dependencies import PartsDep
from server.pages.queries import verification_context
from web.charts import replay_figure
from web.duel_chart import duel_figure
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/verifications/{verification_id}", response_class=HTMLResponse)
def verification_page(verification_id: str, parts: PartsDep) -> str:
    """A replay, live while it runs, with its verdict when it has ended."""
    with parts.database.read() as session:
        context = verification_context(session, parts, verification_id)
    return render("verification.html", **context)


@router.get("/verifications/{verification_id}/charts/replay.json")
def replay_chart(verification_id: str, parts: PartsDep) -> dict[str, Any]:
    """A replay's curves against the band."""
    with parts.database.read() as session:
        context = verification_context(session, parts, verification_id)
    return replay_figure(context["verification"])


@router.get("/verifications/{verification_id}/charts/duel.json")
def duel_chart(verification_id: str, parts: PartsDep) -> dict[str, Any]:
    """The times of a duel, pair by pair."""
    with parts.database.read() as session:
        context = verification_context(session, parts, verification_id)
    if context["verification"]["duel"] is None:
        raise HTTPException(404, f"Verification {verification_id} is no duel.")
    return duel_figure(context["verification"]["duel"])
