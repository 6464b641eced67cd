"""Results across boards: of a round, an accelerator, a submitter."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.text import did_you_mean
from server.base.errors import NotFoundError
from server.base.services import Services, ServicesDep
from server.benchmarks.queries import NO_SUBMISSIONS, count_submissions
from server.benchmarks.views import benchmark_view
from server.boards.service import board_results
from server.pages.board_times import times_of
from server.pages.round_views import round_views
from web.home_words import families
from web.names import named
from web.render import render
from web.rounds import Shown, round_matrix

router = APIRouter(include_in_schema=False)
MOST_SHOWN = 200


@router.get("/rounds/{round_id}", response_class=HTMLResponse)
def round_page(
    round_id: str,
    services: ServicesDep,
    division: Annotated[str | None, Query(max_length=20)] = None,
    show: Shown = "minutes",
) -> str:
    """The systems of a round by its benchmarks, in one division."""
    with services.database.read() as session:
        counts = count_submissions(session, services.benchmarks)
        views = [
            view
            for name, one in services.benchmarks.items()
            for view in round_views(one, counts.get(name, NO_SUBMISSIONS))
        ]
        every = families(views)
        family = next((one for one in every if one.round_id == round_id), None)
        if family is None:
            raise NotFoundError(f"There is no round {round_id[:100]!r}.")
        benchmarks = [*family.rows, *family.waiting]
        shown = {(b["id"], b["round"]) for b in benchmarks}
        every_result = board_results(session, [services.benchmarks[b["id"]] for b in benchmarks])
        results = [r for r in every_result if (r["benchmark"], r["round"]) in shown]
    divisions = sorted({result["division"] for result in results})
    numbered = Counter(result["division"] for result in results if result["rank"])
    most = max(divisions, key=lambda name: numbered[name], default=None)
    chosen = division if division in divisions else most
    return render(
        "round.html",
        family=family,
        benchmarks=benchmarks,
        matrix=round_matrix(benchmarks, [r for r in results if r["division"] == chosen], show),
        divisions=divisions,
        division=chosen,
        show=show,
    )


@router.get("/accelerators/{accelerator}", response_class=HTMLResponse)
def accelerator_page(accelerator: str, services: ServicesDep) -> str:
    """The results with one accelerator, in any number."""

    def fits(result: dict[str, Any]) -> bool:
        model = result["accelerator"].model
        return model is not None and model.casefold() == accelerator.casefold()

    return _page(services, "accelerator", accelerator, fits)


@router.get("/submitters/{submitter:path}", response_class=HTMLResponse)
def submitter_page(submitter: str, services: ServicesDep) -> str:
    """The results of one submitter."""
    return _page(services, "submitter", submitter, lambda r: r["submitter"] == submitter)


def _page(services: Services, kind: str, name: str, fits: Callable[[dict[str, Any]], bool]) -> str:
    with services.database.read() as session:
        every = board_results(session, services.benchmarks.values())
        found = [result for result in every if fits(result)]
        times = _times(session, services, found)
    if not found:
        known = {r["accelerator"].model if kind == "accelerator" else r["submitter"] for r in every}
        meant = did_you_mean(name, [one for one in known if one])
        raise NotFoundError(f"There is no result of {kind} {name[:100]!r}{meant}.")
    return render(
        "results.html",
        kind=kind,
        name=(
            found[0]["accelerator"].model
            if kind == "accelerator"
            else named(name, found[0]["display_name"])
        ),
        results=found,
        most=MOST_SHOWN,
        benchmarks={b["id"]: b for b in _views(services.benchmarks.values())},
        times=times,
    )


def _times(session: Session, services: Services, found: list[dict[str, Any]]) -> dict[Any, Any]:
    boards = {(result["benchmark"], result["division"], result["evidence"]) for result in found}
    return {board: times_of(session, services.benchmarks, *board) for board in boards}


def _views(benchmarks: Iterable[Benchmark]) -> list[dict[str, Any]]:
    return [benchmark_view(one).model_dump(mode="json") for one in benchmarks]
