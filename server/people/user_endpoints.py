"""Endpoints of users and organisations, for admins; organisers read and approve users."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from server.base.addresses import site_address
from server.base.errors import ContentError
from server.base.services import ServicesDep
from server.people import erasure, invitations, users
from server.people.dependencies import AdminDep, OrganiserDep
from server.people.views import (
    InvitationCreate,
    InvitationCreated,
    InvitationList,
    InvitationView,
    OrganisationCreate,
    OrganisationList,
    OrganisationView,
    UserChange,
    UserCreate,
    UserErasure,
    UserKnown,
    UserKnownChange,
    UserList,
    UserView,
)

router = APIRouter(tags=["users"])
InvitationId = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get("/users")
def list_users(
    services: ServicesDep,
    caller: OrganiserDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: Annotated[str | None, Query(max_length=100)] = None,
    q: Annotated[str | None, Query(max_length=100)] = None,
) -> UserList:
    """List users by name, or those with `q` in their name. Of e-mails only admins see any."""
    with services.database.read() as session:
        found = users.list_users(session, by=caller, limit=limit + 1, after=after, search=q)
    page = found[:limit]
    return UserList(users=page, next_after=page[-1].name if len(found) > limit else None)


@router.post("/users", status_code=201)
def create_user(services: ServicesDep, caller: AdminDep, body: UserCreate) -> UserView:
    """Create a user; tokens are made separately."""
    with services.database.write() as session:
        user = users.create_user(session, caller, body)
        return users.read_user(session, user.name, by=caller)


@router.get("/users/{name}")
def get_user(name: str, services: ServicesDep, caller: OrganiserDep) -> UserView:
    """Read a user; the e-mail is for admins."""
    with services.database.read() as session:
        return users.read_user(session, name, by=caller)


@router.patch("/users/{name}")
def change_user(name: str, services: ServicesDep, caller: AdminDep, body: UserChange) -> UserView:
    """Change display name, role, organisation or e-mail, disable or enable. Omitted fields stay."""
    with services.database.write() as session:
        user = users.change_user(session, caller, name, body)
        return users.read_user(session, user.name, by=caller)


@router.post("/users/{name}/erasure")
def erase_user(name: str, services: ServicesDep, caller: AdminDep, body: UserErasure) -> UserView:
    """Erase a person: their name becomes former-17, their access ends. Results stay. For ever."""
    if body.name != name:
        raise ContentError(f"The body names {body.name!r}. To erase {name!r}, name it again.")
    with services.database.write() as session:
        user = erasure.erase_user(session, caller, name)
        return users.read_user(session, user.name, by=caller)


@router.put("/users/{name}/known")
def change_known(
    name: str, services: ServicesDep, caller: OrganiserDep, body: UserKnownChange
) -> UserKnown:
    """Approve a user, so that workers without a memory cgroup train their code, or revoke it.

    Such a sandbox bounds less of the host's memory: approve only users whom you know.
    """
    with services.database.write() as session:
        user = users.change_known(session, caller, name, known=body.known)
        return UserKnown.of(user)


@router.get("/invitations")
def list_invitations(services: ServicesDep, caller: OrganiserDep) -> InvitationList:
    """List the links by which people join that the caller made, newest first; an admin sees all."""
    with services.database.read() as session:
        found = invitations.list_invitations(session, caller)
        return InvitationList(invitations=[invitations.invitation_view(one) for one in found])


@router.post("/invitations", status_code=201)
def create_invitation(
    request: Request, services: ServicesDep, caller: OrganiserDep, body: InvitationCreate
) -> InvitationCreated:
    """Make a link by which one person joins, or a class. Its address is shown only once."""
    with services.database.write() as session:
        made, code = invitations.make_invitation(session, caller, body)
        view, remark = invitations.invitation_view(made), invitations.remark_on(session, made)
    link = f"{site_address(request, services.settings)}/join/{code}"
    return InvitationCreated(**view.model_dump(), link=link, remark=remark)


@router.delete("/invitations/{invitation_id}")
def revoke_invitation(
    invitation_id: InvitationId, services: ServicesDep, caller: OrganiserDep
) -> InvitationView:
    """Revoke a link by which people join. Those who joined with it stay."""
    with services.database.write() as session:
        found = invitations.revoke_invitation(session, caller, invitation_id)
        return invitations.invitation_view(found)


@router.get("/organisations")
def list_organisations(services: ServicesDep, _caller: AdminDep) -> OrganisationList:
    """List every organisation by name."""
    with services.database.read() as session:
        return OrganisationList(organisations=users.list_organisations(session))


@router.post("/organisations", status_code=201)
def create_organisation(
    services: ServicesDep, caller: AdminDep, body: OrganisationCreate
) -> OrganisationView:
    """Add an organisation, for users to belong to."""
    with services.database.write() as session:
        made = users.create_organisation(session, caller, body.name)
        return OrganisationView.of(made, users=0)
