"""Two to six submissions of one benchmark side by side."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from server.errors import ContentError
from server.pages.comparison_context import Context, board_beside, comparison_context, read_ids
from server.people.dependencies import Parts, PartsDep
from server.people.signed_in import ViewerDep
from server.viewer import Viewer
from web.compare import compare_link
from web.compare_chart import overlaid_curves, run_times_figure
from web.render import render

router = APIRouter(include_in_schema=False)
IdsDep = Annotated[list[str] | None, Query(max_length=100)]
RowsDep = Annotated[Literal["all", "different"], Query()]


@router.get("/compare", response_class=HTMLResponse)
def compare_page(
    parts: PartsDep, viewer: ViewerDep, ids: IdsDep = None, rows: RowsDep = "all"
) -> Response:
    """A comparison, or what is missing for one. Several `ids` are led to one address of them."""
    wanted = read_ids(ids or ())
    more = {"rows": rows} if rows != "all" else {}
    if wanted and ids != [",".join(wanted)]:
        return RedirectResponse(compare_link(wanted, **more), status_code=303)
    with parts.database.read(viewer) as session:
        status, context = comparison_context(session, parts, wanted)
        context |= board_beside(session, parts, wanted)
    return HTMLResponse(render("compare.html", **context, rows=rows), status_code=status)


@router.get("/compare/charts/curves.json")
def curves_chart(parts: PartsDep, viewer: ViewerDep, ids: IdsDep = None) -> dict[str, Any]:
    """The curves of every run over each other."""
    context = _complete(parts, viewer, ids)
    return overlaid_curves(context["submissions"], context["benchmark"]["target"])


@router.get("/compare/charts/times.json")
def times_chart(parts: PartsDep, viewer: ViewerDep, ids: IdsDep = None) -> dict[str, Any]:
    """The times of every run beside each other."""
    return run_times_figure(_complete(parts, viewer, ids)["comparison"]["submissions"])


def _complete(parts: Parts, viewer: Viewer, ids: list[str] | None) -> Context:
    with parts.database.read(viewer) as session:
        _, context = comparison_context(session, parts, read_ids(ids or ()))
    if context["comparison"] is None:
        raise ContentError(context["problem"] or "ids: expected two to six different submissions.")
    return context
