"""Duels: ask for one. It is read, watched and cancelled as every verification is."""

from fastapi import APIRouter

from server.dependencies import OrganiserDep, PartsDep
from server.duels import service
from server.duels.schemas import DuelCreate
from server.verifications import queries
from server.verifications.schemas import VerificationView

router = APIRouter(tags=["verifications"])


@router.post("/duels", status_code=201)
def request_duel(parts: PartsDep, caller: OrganiserDep, body: DuelCreate) -> VerificationView:
    """Ask for two submissions to be trained in turn on one worker, in sealed pairs of runs."""
    with parts.database.write() as session:
        verification = service.ask_for_duel(session, caller, body)
        session.refresh(verification)
        return queries.view(
            session, verification, alive_seconds=parts.settings.worker_alive_seconds
        )
