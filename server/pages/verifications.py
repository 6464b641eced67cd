"""A verification's page, live while it runs."""

from typing import Annotated, Literal

from fastapi import Query
from sqlalchemy.orm import Session

from finishline.rules.verification.purposes import HEAD_TO_HEAD, is_in_box
from server.base.models import Verification
from server.base.services import Services
from server.base.standing import find_verification
from server.benchmarks.definitions import definition
from server.boards.live import read_race
from server.pages.declared import public_page
from server.pages.entries import has_halves, untimed_runs
from server.pages.queries import Context, verification_context
from server.people.declared import Routes
from server.verifications.queue import read_place
from web.formats import SECONDS, TimeFormat
from web.race import verification_picture
from web.replay_chart import replay_figure

router = Routes(include_in_schema=False)
GhostQuery = Annotated[Literal["record", "claim"] | None, Query()]


@public_page("/verifications/{verification_id}", "verification.html")
def verification_page(
    session: Session, services: Services, verification_id: str, ghost: GhostQuery = None
) -> Context:
    """A replay, live while it runs, with its verdict when it has ended."""
    verification = find_verification(session, verification_id)
    context = verification_context(session, services, verification)
    shown = context.pop("verification")
    return context | {
        "shown": shown_verification(session, verification, shown, ghost, context["time"])
    }


@public_page("/verifications/{verification_id}/race", "race_page.html")
def race_page(session: Session, services: Services, verification_id: str) -> Context:
    """A race on the whole screen, a lane for each run and ghost: live, or to be replayed."""
    verification = find_verification(session, verification_id)
    context = verification_context(session, services, verification)
    race = read_race(session, verification).model_dump(mode="json")
    untimed = untimed_runs(verification)
    picture = verification_picture(context["verification"], race, context["time"], untimed)
    return context | {"picture": picture}


def shown_verification(
    session: Session,
    row: Verification,
    verification: Context,
    ghost: str | None,
    time: TimeFormat = SECONDS,
) -> Context:
    """A verification as its page and its submission's show it, with its race and its place."""
    race = read_race(session, row).model_dump(mode="json")
    untimed = untimed_runs(row)
    return {
        "verification": verification,
        "race": race,
        "picture": verification_picture(verification, race, time, untimed),
        "ghost": ghost,
        "place": _place(session, row),
        "halves": is_in_box(row.kind) and has_halves(definition(session, row.benchmark_sha256)),
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


@router.read("/verifications/{verification_id}/charts/replay.json")
def replay_chart(session: Session, services: Services, verification_id: str) -> Context:
    """A replay's curves beside its ghosts and against the band."""
    verification = find_verification(session, verification_id)
    context = verification_context(session, services, verification)
    race = read_race(session, verification).model_dump(mode="json")
    return replay_figure(context["verification"], race, context["time"])


def _place(session: Session, verification: Verification) -> Context | None:
    """Place of a verification in its queue, and its hardware class; None if it does not wait."""
    found = read_place(session, verification.id) if verification.state == "queued" else None
    if found is None:
        return None
    queue, item = (part.model_dump(mode="json") for part in found)
    return {"queue": queue, "item": item}
