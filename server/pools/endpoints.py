"""Pools: read one, close one, ask again for its fresh runs."""

from fastapi import APIRouter

from server.dependencies import OrganiserDep, PartsDep
from server.pools.closing import close_as_organiser
from server.pools.queries import view_pool
from server.pools.requests import ask_again_for_fresh_runs
from server.pools.schemas import PoolClose, PoolView
from server.sessions.viewing import ViewerDep

router = APIRouter(tags=["verifications"])


@router.get("/pools/{pool_id}")
def get_pool(pool_id: str, parts: PartsDep, viewer: ViewerDep) -> PoolView:
    """The sealed runs of a configuration, and the time they measure."""
    with parts.database.read(viewer) as session:
        return view_pool(session, pool_id)


@router.post("/pools/{pool_id}/close")
def close_pool(pool_id: str, parts: PartsDep, caller: OrganiserDep, body: PoolClose) -> PoolView:
    """Close a pool after a change of worker or software; the next replay opens another one.

    Its submissions drop from measured to claimed until then. Its runs stay readable.
    """
    with parts.database.write() as session:
        close_as_organiser(session, caller, pool_id, body.reason)
        return view_pool(session, pool_id)


@router.post("/pools/{pool_id}/fresh-runs", status_code=201)
def request_fresh_runs(pool_id: str, parts: PartsDep, caller: OrganiserDep) -> PoolView:
    """Ask again for the fresh runs of a pool that ended without a measurement."""
    with parts.database.write() as session:
        ask_again_for_fresh_runs(session, caller, pool_id)
        return view_pool(session, pool_id)
