"""Links by which people join, from the console: make, list, revoke."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from server.base.addresses import site_address
from server.pages.console_page import Console, Done, OrganiserDep, filled
from server.people import invitations
from server.people.sessions import Notice
from server.people.signed_in import Fields, FormDep
from server.people.token_issue import may_give
from server.people.users import list_organisations
from server.people.views import InvitationCreate

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/invitations"
InvitationId = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get(ADDRESS)
def invitations_page(console: OrganiserDep) -> HTMLResponse:
    """Links without their codes, and the form that makes one."""
    return _page(console, {"role": "submitter", "uses": "1"})


@router.post(ADDRESS)
def make(request: Request, console: OrganiserDep, form: FormDep) -> Response:
    """Make a link; the answer shows its address, once."""
    site = site_address(request, console.services.settings)

    def give(session: Session, wanted: InvitationCreate) -> Done:
        made, code = invitations.make_invitation(session, console.caller, wanted)
        people = "1 person" if made.uses_allowed == 1 else f"{made.uses_allowed} people"
        told = f"Link {made.id} is made: {people} may join as {made.role}."
        if (remark := invitations.remark_on(session, made)) is not None:
            told += f" {remark}"
        return ADDRESS, Notice(told, once_only=f"{site}/join/{code}")

    return console.submit(InvitationCreate, filled(form), give, partial(_page, console, form))


@router.post(ADDRESS + "/{invitation_id}/revoke")
def revoke(invitation_id: InvitationId, console: OrganiserDep, _form: FormDep) -> Response:
    """Revoke a link now."""

    def end(session: Session) -> Done:
        found = invitations.revoke_invitation(session, console.caller, invitation_id)
        return ADDRESS, Notice(f"Link {found.id} is revoked.")

    return console.change(end, partial(_page, console, {}))


def _page(console: Console, typed: Fields, **wrong: Any) -> HTMLResponse:
    caller = console.caller
    with console.services.database.read() as session:
        found = invitations.list_invitations(session, caller)
        links = [invitations.invitation_view(one) for one in found]
        names = [one.name for one in list_organisations(session)]
    return console.page(
        "invitations.html",
        typed=typed,
        links=links,
        roles=[(role, role) for role in may_give(caller)],
        organisations=[("", "none"), *((name, name) for name in names)],
        **wrong,
    )
