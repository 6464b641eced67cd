"""Head-to-heads asked for from the console."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.rules.verification.head_to_head import why_no_head_to_head
from server.base.models import Pool, Submission, Verification
from server.base.standing import SHOWN, claim_of
from server.benchmarks.definitions import definition
from server.pages.console_page import Console, Done, OrganiserDep
from server.people.declared import filled
from server.people.sessions import Notice
from server.people.signed_in import FormDep
from server.verifications.head_to_heads import (
    HeadToHeadCreate,
    ask_for_head_to_head,
    cost_of_head_to_head,
)
from server.verifications.views import line
from web.names import row_name

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/head-to-heads"
LATEST = 20


@router.get(ADDRESS)
def head_to_heads_page(
    console: OrganiserDep,
    challenger: str = "",
    holder: str = "",
    ids: Annotated[list[str] | None, Query(max_length=100)] = None,
) -> HTMLResponse:
    """The latest head-to-heads, and the form that asks for one.

    Of two rows marked on a board the second challenges the first.
    """
    if ids is not None and len(ids) > 1:
        holder, challenger = ids[:2]
    return _page(console, {"challenger": challenger, "holder": holder})


@router.post(ADDRESS)
def ask(console: OrganiserDep, form: FormDep) -> Response:
    """Ask for a head-to-head."""

    def ask_for_one(session: Session, wanted: HeadToHeadCreate) -> Done:
        head_to_head = ask_for_head_to_head(
            session, console.services.settings, console.caller, wanted
        )
        return ADDRESS, Notice(f"Head-to-head {head_to_head.id} is queued.")

    page = partial(_page, console, form)
    return console.submit(HeadToHeadCreate, filled(form), ask_for_one, page)


def _page(console: Console, typed: Mapping[str, Any], **wrong: Any) -> HTMLResponse:
    with console.services.database.read(console.viewer) as session:
        found = session.scalars(
            select(Verification)
            .where(Verification.kind == "head_to_head")
            .order_by(Verification.created_at.desc())
            .limit(LATEST)
            .options(*SHOWN)
        )
        head_to_heads = [line(session, item) for item in found]
        challenger = _known(session, typed.get("challenger"))
        sides = [challenger, _known(session, typed.get("holder"))]
        offered = [] if challenger is None else _opponents(session, challenger)
        shown: dict[str, Any] = {
            "cost": _cost(session, sides),
            "sides": [None if side is None else _side(side) for side in sides],
            "offered": [(each.id, _side(each)["words"]) for each in offered],
        }
    return console.page(
        "head_to_heads.html", typed=typed, head_to_heads=head_to_heads, **shown, **wrong
    )


def _cost(session: Session, sides: list[Submission | None]) -> dict[str, Any] | None:
    """The runs and device seconds of a head-to-head at most; None before both are chosen."""
    challenger, holder = sides
    if challenger is None or holder is None:
        return None
    benchmark = definition(session, challenger.benchmark_sha256)
    if why_no_head_to_head(benchmark, claim_of(challenger), claim_of(holder)) is not None:
        return None
    pairs = benchmark.ranking.pairs
    return vars(cost_of_head_to_head(session, benchmark, (challenger, holder), pairs=pairs))


def _known(session: Session, name: str | None) -> Submission | None:
    return session.get(Submission, name) if name else None


def _opponents(session: Session, challenger: Submission) -> list[Submission]:
    """The fastest live submissions of the challenger's board and hardware class."""
    hardware_class = Submission.system["hardware_class"].as_string()
    seconds = func.coalesce(Pool.measured_seconds, Submission.tta_seconds)
    rows = session.scalars(
        select(Submission)
        .outerjoin(Pool, Pool.id == Submission.pool_id)
        .where(
            Submission.benchmark_id == challenger.benchmark_id,
            Submission.kind == "train",
            Submission.division == challenger.division,
            Submission.withdrawn_at.is_(None),
            Submission.duplicate_of.is_(None),
            seconds.is_not(None),
            Submission.id != challenger.id,
            hardware_class == challenger.system["hardware_class"],
        )
        .order_by(seconds)
        .limit(LATEST)
    )
    return list(rows)


def _side(submission: Submission) -> dict[str, str]:
    row = {
        "system": submission.system,
        "submitter": submission.submitter,
        "display_name": submission.display_name,
        "model": submission.model,
        "evidence": submission.evidence,
    }
    return {"id": submission.id, "words": row_name(row)}
