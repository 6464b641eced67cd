"""Who is faster, of a few submissions."""

from typing import Annotated

from fastapi import APIRouter, Query

from server.comparisons.queries import compare_submissions
from server.comparisons.schemas import ComparisonView
from server.dependencies import PartsDep
from server.sessions.viewing import ViewerDep

router = APIRouter(tags=["leaderboards"])
SubmissionsDep = Annotated[
    str,
    Query(
        max_length=200,
        description="Two to six submission ids, separated by commas.",
        json_schema_extra={"pattern": "^[a-z0-9]+(,[a-z0-9]+){1,5}$"},
    ),
]


@router.get("/compare")
def get_comparison(
    submissions: SubmissionsDep, parts: PartsDep, viewer: ViewerDep
) -> ComparisonView:
    """Every pair of two to six submissions of one benchmark: who is faster, and how surely."""
    with parts.database.read(viewer) as session:
        return compare_submissions(session, submissions)
