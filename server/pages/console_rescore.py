"""Rescoring from the console, a batch at a time: a dry run first, then the same for good."""

from functools import partial
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field

from finishline.api.submissions import CURSOR_PATTERN
from server.base.errors import ServerError
from server.pages.console_page import Console, OrganiserDep, filled, read_form
from server.people.signed_in import FormDep
from server.submissions.rescoring import Choice, rescore_batch, rescore_view

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/rescore"


class Wanted(BaseModel):
    """A benchmark to rescore, and where an earlier batch ended."""

    benchmark: str = Field(min_length=1, max_length=100)
    definition: Literal["stored", "current"]
    act: Literal["preview", "rescore"]
    cursor: str | None = Field(default=None, pattern=CURSOR_PATTERN)


@router.get(ADDRESS)
def rescore_page(console: OrganiserDep, benchmark: str = "") -> HTMLResponse:
    """The form that rescores a benchmark's submissions, and downloads of its results."""
    return _page(console, {"benchmark": benchmark, "definition": "stored"})


@router.post(ADDRESS)
def rescore(console: OrganiserDep, form: FormDep) -> Response:
    """Rescore one batch, or show what it would change."""
    page = partial(_page, console, form)
    wanted, errors = read_form(Wanted, filled(form))
    if wanted is None:
        return page(errors=errors)
    choice = Choice(
        benchmark_id=wanted.benchmark,
        current=wanted.definition == "current",
        dry_run=wanted.act == "preview",
        actor=console.caller,
    )
    try:
        batch = rescore_batch(console.services, choice, cursor=wanted.cursor)
    except ServerError as error:
        return page(refusal=error)
    return page(batch=rescore_view(batch))


def _page(console: Console, typed: dict[str, Any], **context: Any) -> HTMLResponse:
    names = [("", "–"), *((name, name) for name in sorted(console.services.benchmarks))]
    return console.page("rescore.html", typed=typed, benchmarks=names, **{"batch": None} | context)
