"""Duels asked for from the console."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.text import count_text
from finishline.rules.verification.duel import FEWEST_PAIRS, MOST_PAIRS, why_no_duel
from server.base.models import Submission, Verification
from server.base.standing import SHOWN, claim_of
from server.benchmarks.queries import definition
from server.pages.console_page import Console, Done, OrganiserDep, filled
from server.people.sessions import Notice
from server.people.signed_in import Fields, FormDep
from server.verifications.duels import ask_for_duel, cost_of_duel
from server.verifications.requests import DuelCreate
from server.verifications.views import view
from web.names import row_name

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/duels"
LATEST = 20


@router.get(ADDRESS)
def duels_page(
    console: OrganiserDep,
    challenger: str = "",
    holder: str = "",
    ids: Annotated[list[str] | None, Query(max_length=100)] = None,
) -> HTMLResponse:
    """The latest duels, and the form that asks for one.

    Of two rows marked on a board the second challenges the first.
    """
    if ids is not None and len(ids) > 1:
        holder, challenger = ids[:2]
    return _page(console, {"challenger": challenger, "holder": holder, "pairs": "4"})


@router.post(ADDRESS)
def ask(console: OrganiserDep, form: FormDep) -> Response:
    """Ask for a duel."""

    def ask_for_one(session: Session, wanted: DuelCreate) -> Done:
        duel = ask_for_duel(session, console.caller, wanted)
        pairs = count_text(wanted.pairs, "pair")
        return ADDRESS, Notice(f"Duel {duel.id} of {pairs} of runs is queued.")

    page = partial(_page, console, form)
    return console.submit(DuelCreate, _as_numbers(filled(form)), ask_for_one, page)


def _as_numbers(fields: Fields) -> dict[str, Any]:
    """The fields with the pairs as a whole number where they are one: a form has text alone."""
    pairs = fields.get("pairs", "")
    fits = pairs.isascii() and pairs.isdigit() and FEWEST_PAIRS <= int(pairs[:9]) <= MOST_PAIRS
    return fields | ({"pairs": int(pairs)} if fits else {})


def _page(console: Console, typed: Mapping[str, Any], **wrong: Any) -> HTMLResponse:
    alive = console.services.settings.worker_alive_seconds
    with console.services.database.read(console.viewer) as session:
        found = session.scalars(
            select(Verification)
            .where(Verification.kind == "duel")
            .order_by(Verification.created_at.desc())
            .limit(LATEST)
            .options(*SHOWN)
        )
        duels = [view(session, item, alive_seconds=alive, with_report=False) for item in found]
        challenger = _known(session, typed.get("challenger"))
        sides = [challenger, _known(session, typed.get("holder"))]
        offered = [] if challenger is None else _opponents(session, challenger)
        shown: dict[str, Any] = {
            "cost": _cost(session, sides, typed.get("pairs")),
            "sides": [None if side is None else _side(side) for side in sides],
            "offered": [(each.id, _side(each)["words"]) for each in offered],
        }
    return console.page("duels.html", typed=typed, duels=duels, **shown, **wrong)


def _cost(session: Session, sides: list[Submission | None], pairs: object) -> dict[str, Any] | None:
    """The runs and device seconds of a duel of two submissions; None before both are chosen."""
    challenger, holder = sides
    count = int(str(pairs)) if re.fullmatch("[0-9]{1,2}", str(pairs)) else FEWEST_PAIRS
    if challenger is None or holder is None:
        return None
    benchmark = definition(session, challenger.benchmark_sha256)
    if why_no_duel(benchmark, claim_of(challenger), claim_of(holder)) is not None:
        return None
    cost = cost_of_duel(session, benchmark, (challenger, holder), pairs=count)
    return {
        "pairs": count,
        "runs": cost.runs,
        "seconds": cost.device_seconds,
        "seconds_a_pair": cost.seconds_a_pair,
        "basis": cost.basis,
    }


def _known(session: Session, name: str | None) -> Submission | None:
    return session.get(Submission, name) if name else None


def _opponents(session: Session, challenger: Submission) -> list[Submission]:
    """The fastest live submissions of the challenger's board and hardware class."""
    hardware_class = Submission.system["hardware_class"].as_string()
    rows = session.scalars(
        select(Submission)
        .where(
            Submission.benchmark_id == challenger.benchmark_id,
            Submission.kind == "train",
            Submission.division == challenger.division,
            Submission.withdrawn_at.is_(None),
            Submission.tta_seconds.is_not(None),
            Submission.id != challenger.id,
            hardware_class == challenger.system["hardware_class"],
        )
        .order_by(Submission.tta_seconds)
        .limit(LATEST)
    )
    return list(rows)


def _side(submission: Submission) -> dict[str, str]:
    row = {
        "system": submission.system,
        "submitter": submission.submitter,
        "display_name": submission.display_name,
    }
    name = row_name(row)
    return {"id": submission.id, "words": f"{name} ({submission.model})"}
