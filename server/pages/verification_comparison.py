"""Two verifications of one submission side by side."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from server.pages.queries import submission_context
from server.people.dependencies import PartsDep
from server.people.signed_in import ViewerDep
from server.standing import find_verification
from server.verifications.queries import view
from server.verifications.reruns import compare_verifications
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/verifications/compare", response_class=HTMLResponse)
def verification_comparison_page(
    first: str, second: str, parts: PartsDep, viewer: ViewerDep
) -> str:
    """Two verdicts with their replays and systems, and what differs beyond chance."""
    alive = parts.settings.worker_alive_seconds
    with parts.database.read(viewer) as session:
        comparison = compare_verifications(session, first, second)
        context = submission_context(session, parts, comparison.submission_id)
        sides = [
            view(session, find_verification(session, each), alive_seconds=alive, with_report=False)
            for each in (first, second)
        ]
    return render(
        "verification_comparison.html",
        comparison=comparison.model_dump(mode="json"),
        submission=context["submission"],
        benchmark=context["benchmark"],
        sides=[side.model_dump(mode="json") for side in sides],
    )
