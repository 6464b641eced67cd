"""A verification's page, live while it runs."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from finishline.rules.verification.purposes import HEAD_TO_HEAD, is_in_box
from server.base.models import Verification
from server.base.services import Services, ServicesDep
from server.base.standing import find_verification
from server.benchmarks.definitions import definition
from server.boards.live import read_race
from server.pages.entries import has_halves, untimed_runs
from server.pages.queries import Context, verification_context
from server.people.signed_in import ViewerDep
from server.verifications.queue import read_place
from web.formats import SECONDS, TimeFormat
from web.race import verification_picture
from web.render import render
from web.replay_chart import replay_figure

router = APIRouter(include_in_schema=False)
GhostQuery = Annotated[Literal["record", "claim"] | None, Query()]


@router.get("/verifications/{verification_id}", response_class=HTMLResponse)
def verification_page(
    verification_id: str, services: ServicesDep, viewer: ViewerDep, ghost: GhostQuery = None
) -> str:
    """A replay, live while it runs, with its verdict when it has ended."""
    with services.database.read(viewer) as session:
        context = verification_context(session, services, verification_id)
        time = context["time"]
        shown = shown_verification(session, services, context.pop("verification"), ghost, time)
    return render("verification.html", **context, shown=shown)


@router.get("/verifications/{verification_id}/race", response_class=HTMLResponse)
def race_page(verification_id: str, services: ServicesDep, viewer: ViewerDep) -> str:
    """A race on the whole screen, a lane for each run and ghost: live, or to be replayed."""
    with services.database.read(viewer) as session:
        context = verification_context(session, services, verification_id)
        race = read_race(session, verification_id).model_dump(mode="json")
        untimed = untimed_runs(find_verification(session, verification_id))
    picture = verification_picture(context["verification"], race, context["time"], untimed)
    return render("race_page.html", **context, picture=picture)


def shown_verification(
    session: Session,
    services: Services,
    verification: Context,
    ghost: str | None,
    time: TimeFormat = SECONDS,
) -> Context:
    """A verification as its page and its submission's show it, with its race and its place."""
    verification_id = verification["id"]
    race = read_race(session, verification_id).model_dump(mode="json")
    row = find_verification(session, verification_id)
    judged_by = definition(session, row.benchmark_sha256)
    untimed = untimed_runs(row)
    return {
        "verification": verification,
        "race": race,
        "picture": verification_picture(verification, race, time, untimed),
        "ghost": ghost,
        "place": _place(session, services, verification),
        "halves": is_in_box(verification["kind"]) and has_halves(judged_by),
        "untimed": untimed,
        "parts": _parts(row),
    }


def _parts(verification: Verification) -> list[str]:
    """The ids of a head-to-head's verifications in order; none for other kinds."""
    if verification.kind != HEAD_TO_HEAD.name:
        return []
    found = [each.id for each in verification.earlier_stages]
    stage: Verification | None = verification
    while stage is not None:
        found.append(stage.id)
        stage = stage.continued_by
    return found


@router.get("/verifications/{verification_id}/charts/replay.json")
def replay_chart(verification_id: str, services: ServicesDep, viewer: ViewerDep) -> dict[str, Any]:
    """A replay's curves beside its ghosts and against the band."""
    with services.database.read(viewer) as session:
        context = verification_context(session, services, verification_id)
        race = read_race(session, verification_id)
    return replay_figure(context["verification"], race.model_dump(mode="json"), context["time"])


def _place(session: Session, services: Services, verification: Context) -> Context | None:
    """Place of a verification in its queue, and its hardware class; None if it does not wait."""
    if verification["state"] != "queued":
        return None
    found = read_place(session, verification["id"])
    if found is None:
        return None
    one, item = (part.model_dump(mode="json") for part in found)
    return {"queue": one, "item": item}
