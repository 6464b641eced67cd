"""Results across boards: of a round, an accelerator, a submitter."""

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy.orm import Session

from finishline.rules.text import did_you_mean
from server.base.errors import NotFoundError
from server.base.services import Services
from server.benchmarks.views import NO_SUBMISSIONS, benchmark_view, count_submissions
from server.boards.board import board_results
from server.pages.board_times import times_of
from server.pages.declared import Context, public_page
from server.pages.round_views import round_views
from web.home_words import families
from web.names import named
from web.rounds import Shown, round_matrix

MOST_SHOWN = 200


@public_page("/rounds/{round_id}", "round.html", to_all=True)
def round_page(
    session: Session,
    services: Services,
    round_id: str,
    division: Annotated[str | None, Query(max_length=20)] = None,
    show: Shown = "minutes",
) -> Context:
    """The systems of a round by its benchmarks, in one division."""
    counts = count_submissions(session, services.benchmarks)
    views = [
        view
        for name, one in services.benchmarks.items()
        for view in round_views(one, counts.get(name, NO_SUBMISSIONS))
    ]
    family = next((one for one in families(views) if one.round_id == round_id), None)
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
    return {
        "family": family,
        "benchmarks": benchmarks,
        "matrix": round_matrix(benchmarks, [r for r in results if r["division"] == chosen], show),
        "divisions": divisions,
        "division": chosen,
        "show": show,
    }


@public_page("/accelerators/{accelerator}", "results.html", to_all=True)
def accelerator_page(session: Session, services: Services, accelerator: str) -> Context:
    """The results with one accelerator, in any number."""

    def fits(result: dict[str, Any]) -> bool:
        model = result["accelerator"].model
        return model is not None and model.casefold() == accelerator.casefold()

    return _results(session, services, "accelerator", accelerator, fits)


@public_page("/submitters/{submitter:path}", "results.html", to_all=True)
def submitter_page(session: Session, services: Services, submitter: str) -> Context:
    """The results of one submitter."""
    return _results(
        session, services, "submitter", submitter, lambda r: r["submitter"] == submitter
    )


def _results(
    session: Session,
    services: Services,
    kind: str,
    name: str,
    fits: Callable[[dict[str, Any]], bool],
) -> Context:
    every = board_results(session, services.benchmarks.values())
    found = [result for result in every if fits(result)]
    if not found:
        known = {r["accelerator"].model if kind == "accelerator" else r["submitter"] for r in every}
        meant = did_you_mean(name, [one for one in known if one])
        raise NotFoundError(f"There is no result of {kind} {name[:100]!r}{meant}.")
    is_accelerator, first = kind == "accelerator", found[0]
    return {
        "kind": kind,
        "name": first["accelerator"].model
        if is_accelerator
        else named(name, first["display_name"]),
        "results": found,
        "most": MOST_SHOWN,
        "benchmarks": {
            one.benchmark_id: benchmark_view(one) for one in services.benchmarks.values()
        },
        "times": _times(session, services, found),
    }


def _times(session: Session, services: Services, found: list[dict[str, Any]]) -> dict[Any, Any]:
    boards = {(result["benchmark"], result["division"], result["evidence"]) for result in found}
    return {board: times_of(session, services.benchmarks, *board) for board in boards}
