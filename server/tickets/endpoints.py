"""Tickets: get seeds before a training, and read one's own."""

from typing import Annotated

from fastapi import APIRouter, Path

from server.people.dependencies import PartsDep, SubmitterDep
from server.tickets import service
from server.tickets.schemas import TicketCreate, TicketList, TicketView, ticket_view

router = APIRouter(tags=["submissions"])
TicketId = Annotated[str, Path(max_length=20)]


@router.post("/tickets", status_code=201)
def create_ticket(parts: PartsDep, caller: SubmitterDep, body: TicketCreate) -> TicketView:
    """Get seeds for a training, before it begins. A ticket is good for 30 days and one submission.

    Three may be open for a benchmark; a fourth is refused with 429.
    """
    with parts.database.write() as session:
        return ticket_view(service.issue_ticket(parts, session, caller, body))


@router.get("/tickets")
def list_tickets(parts: PartsDep, caller: SubmitterDep) -> TicketList:
    """Your tickets, newest first; a hundred at the most."""
    with parts.database.read() as session:
        rows = service.own_tickets(session, caller)
        return TicketList(tickets=[ticket_view(row) for row in rows])


@router.get("/tickets/{ticket_id}")
def get_ticket(ticket_id: TicketId, parts: PartsDep, caller: SubmitterDep) -> TicketView:
    """One ticket of yours."""
    with parts.database.read() as session:
        return ticket_view(service.own_ticket(session, caller, ticket_id))
