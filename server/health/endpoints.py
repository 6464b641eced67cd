"""Is the server alive, and does what it needs answer?"""

from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from server.dependencies import PartsDep

router = APIRouter(tags=["health"])


class HealthView(BaseModel):
    """What works and what does not."""

    status: str
    version: str
    database: str
    broker: str


@router.get("/healthz", responses={503: {"description": "The database does not answer."}})
def healthz(parts: PartsDep, request: Request, response: Response) -> HealthView:
    """200 while the database answers. A broker out of reach delays replays and loses nothing."""
    try:
        with parts.database.read() as session:
            session.execute(text("SELECT 1"))
        database = "ok"
    except SQLAlchemyError:
        database = "unreachable"
        response.status_code = 503
    return HealthView(
        status="ok" if database == "ok" else "failing",
        version=version("finishline"),
        database=database,
        broker=request.app.state.dispatcher.broker_state,
    )
