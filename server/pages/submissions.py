"""A submission's page and its curves."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from server.dependencies import PartsDep
from server.pages.queries import submission_context, submission_with_curves
from web.charts import curves_figure
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/submissions/{submission_id}", response_class=HTMLResponse)
def submission_page(submission_id: str, parts: PartsDep) -> str:
    """A submission and its score, step by step."""
    with parts.database.read() as session:
        context = submission_context(session, parts, submission_id)
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
