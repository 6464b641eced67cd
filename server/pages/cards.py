"""Pictures of shared links: a card for each board and each submission."""

import hashlib

from fastapi import APIRouter, Request, Response

from finishline.api.boards import BoardQuery
from server.base.middleware import reader_has
from server.base.services import ServicesDep
from server.benchmarks.queries import find_benchmark
from server.pages.board_context import board_context
from server.pages.queries import submission_page_context
from server.people.signed_in import ViewerDep
from web.card import board_card, card_png, submission_card

router = APIRouter(include_in_schema=False)


@router.get("/benchmarks/{benchmark_id}/card.png")
def benchmark_card(benchmark_id: str, services: ServicesDep, request: Request) -> Response:
    """A board's target, leader and picture as PNG."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    query = BoardQuery.model_validate({"limit": 1})
    with services.database.read() as session:
        context = board_context(session, benchmark, query)
    leader = next((e for e in context["board"]["entries"] if e["rank"] is not None), None)
    return _answer(
        request, board_card(context["benchmark"], leader, context["time"], context["map"])
    )


@router.get("/submissions/{submission_id}/card.png")
def one_submissions_card(
    submission_id: str, services: ServicesDep, viewer: ViewerDep, request: Request
) -> Response:
    """A submission's hardware, time and number as PNG."""
    with services.database.read(viewer) as session:
        context = submission_page_context(session, services, submission_id)
    return _answer(
        request, submission_card(context["submission"], context["place"], context["time"])
    )


def _answer(request: Request, svg: str) -> Response:
    """The card; its tag is that of its drawing, so that an unchanged one is not drawn again."""
    etag = f'"{hashlib.sha256(svg.encode()).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if reader_has(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(card_png(svg), media_type="image/png", headers=headers)
