"""Dependencies of endpoints: the caller, and the roles they need."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from server.base.errors import NotAllowedError, NotSignedInError
from server.base.request_context import note, note_signed_in
from server.base.services import ServicesDep
from server.people.accounts import ORGANISERS, SUBMITTERS, Holder, find_holder, note_use

bearer = HTTPBearer(auto_error=False, description="An API token: `Bearer fl_...`")
BearerDep = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


@dataclass(frozen=True)
class Caller:
    """The authenticated user of a request. The source is "console", None for the API."""

    user_id: int
    token_id: int
    name: str
    role: str
    source: str | None = None
    organisation_id: int | None = None

    @property
    def is_admin(self) -> bool:
        """Whether their token is an admin's."""
        return self.role == "admin"

    @property
    def is_organiser(self) -> bool:
        """Whether their token is an organiser's or an admin's."""
        return self.role in ORGANISERS

    @property
    def is_submitter(self) -> bool:
        """Whether their token may send submissions: any but a worker's."""
        return self.role in SUBMITTERS


def caller_of(holder: Holder, *, source: str | None = None) -> Caller:
    """The Caller behind a token."""
    return Caller(
        user_id=holder.user_id,
        token_id=holder.token_id,
        name=holder.name,
        role=holder.role,
        source=source,
        organisation_id=holder.organisation_id,
    )


async def bearer_secret(credentials: BearerDep) -> str:
    """Bearer token of the request."""
    if credentials is None:
        raise NotSignedInError(
            "This needs an API token: send the header 'Authorization: Bearer …'."
        )
    return credentials.credentials


SecretDep = Annotated[str, Depends(bearer_secret)]


def get_caller(services: ServicesDep, secret: SecretDep) -> Caller:
    """Caller of the request's bearer token. Raises NotSignedInError for an invalid one."""
    with services.database.read_columns() as connection:
        holder = find_holder(connection, secret)
    note(user_id=holder.user_id)
    note_signed_in(secret, holder.role, holder.user_id)
    note_use(services.database, holder)
    return caller_of(holder)


CallerDep = Annotated[Caller, Depends(get_caller)]


READING = ("GET", "HEAD")


def require_one_of(caller: Caller, roles: tuple[str, ...]) -> None:
    """Raise NotAllowedError unless the caller's token has one of these roles."""
    if caller.role not in roles:
        *others, last = roles
        needed = f"{', '.join(others)} or {last}" if others else last
        raise NotAllowedError(f"This needs a token of role {needed}; yours is {caller.role}.")


def require_role(*roles: str) -> Callable[[Caller], Awaitable[Caller]]:
    """Dependency that requires a token of one of these roles."""

    async def check(caller: CallerDep) -> Caller:
        require_one_of(caller, roles)
        return caller

    return check


SubmitterDep = Annotated[Caller, Depends(require_role(*SUBMITTERS))]
OrganiserDep = Annotated[Caller, Depends(require_role(*ORGANISERS))]
AdminDep = Annotated[Caller, Depends(require_role("admin"))]
WorkerDep = Annotated[Caller, Depends(require_role("worker"))]
