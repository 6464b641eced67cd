"""A submission's page, its curves, and its badge for a README."""

import hashlib
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from server.conditions import reader_has
from server.dependencies import PartsDep
from server.pages.addresses import site_address
from server.pages.queries import (
    submission_context,
    submission_page_context,
    submission_with_checks,
    submission_with_curves,
)
from web.badge import badge_svg
from web.charts import curves_figure
from web.render import render
from web.verdicts import published_check

router = APIRouter(include_in_schema=False)


@router.get("/submissions/{submission_id}", response_class=HTMLResponse)
def submission_page(submission_id: str, parts: PartsDep, request: Request) -> str:
    """A submission and its score, step by step."""
    with parts.database.read() as session:
        context = submission_page_context(session, parts, submission_id)
        context["site"] = site_address(request, parts.settings)
        if context["submission"]["kind"] == "inference":
            return render("inference.html", **context)
        context["curves"] = submission_with_curves(session, submission_id)
    return render("submission.html", **context)


@router.get("/submissions/{submission_id}/charts/curves.json")
def curves_chart(submission_id: str, parts: PartsDep) -> dict[str, Any]:
    """Quality against time, run by run."""
    with parts.database.read() as session:
        context = submission_context(session, parts, submission_id)
        runs = submission_with_curves(session, submission_id)
    return curves_figure(runs, context["benchmark"]["target"], context["control_points"])


@router.get("/submissions/{submission_id}/badge.svg")
def badge(submission_id: str, parts: PartsDep, request: Request) -> Response:
    """The state of a submission as a picture; whoever shows it asks each time if it changed."""
    with parts.database.read() as session:
        context = submission_with_checks(session, parts, submission_id)
    submission = context["submission"]
    content = badge_svg(submission, published_check(submission, context["checks"])).encode()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if reader_has(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="image/svg+xml", headers=headers)
