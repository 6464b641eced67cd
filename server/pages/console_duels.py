"""Duels asked for from the console."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from sqlalchemy import select

from finishline.rules.text import count_text
from finishline.rules.verification.duel import FEWEST_PAIRS, MOST_PAIRS
from server.base.errors import ServerError
from server.base.models import Verification
from server.base.services import Services, ServicesDep
from server.base.standing import SHOWN
from server.pages.console_page import console_page, filled, go_on, read_form
from server.people.sessions import Notice, SignedIn
from server.people.signed_in import ConsoleDep, Fields, FormDep, viewer_for
from server.verifications.duel_schemas import DuelCreate
from server.verifications.duels import ask_for_duel
from server.verifications.queries import view

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/duels"
LATEST = 20


@router.get(ADDRESS)
def duels_page(
    services: ServicesDep, signed_in: ConsoleDep, challenger: str = "", holder: str = ""
) -> HTMLResponse:
    """The latest duels, and the form that asks for one."""
    typed = {"challenger": challenger, "holder": holder, "pairs": "4"}
    return _page(services, signed_in, typed)


@router.post(ADDRESS)
def ask(services: ServicesDep, signed_in: ConsoleDep, form: FormDep) -> Response:
    """Ask for a duel."""
    wanted, errors = read_form(DuelCreate, _as_numbers(filled(form)))
    if wanted is None:
        return _page(services, signed_in, form, errors=errors)
    try:
        with services.database.write() as session:
            duel = ask_for_duel(session, signed_in.caller, wanted)
            pairs = count_text(wanted.pairs, "pair")
            told = Notice(f"Duel {duel.id} of {pairs} of runs is queued.")
    except ServerError as error:
        return _page(services, signed_in, form, refusal=error)
    return go_on(services, signed_in, ADDRESS, told)


def _as_numbers(fields: Fields) -> dict[str, Any]:
    """The fields with the pairs as a whole number where they are one: a form has text alone."""
    pairs = fields.get("pairs", "")
    fits = pairs.isascii() and pairs.isdigit() and FEWEST_PAIRS <= int(pairs[:9]) <= MOST_PAIRS
    return fields | ({"pairs": int(pairs)} if fits else {})


def _page(services: Services, signed_in: SignedIn, typed: Fields, **wrong: Any) -> HTMLResponse:
    alive = services.settings.worker_alive_seconds
    with services.database.read(viewer_for(signed_in.caller)) as session:
        found = session.scalars(
            select(Verification)
            .where(Verification.kind == "duel")
            .order_by(Verification.created_at.desc())
            .limit(LATEST)
            .options(*SHOWN)
        )
        duels = [
            view(session, item, alive_seconds=alive, with_report=False).model_dump(mode="json")
            for item in found
        ]
    return console_page(services, signed_in, "duels.html", typed=typed, duels=duels, **wrong)
