"""Dependencies of endpoints: the caller, and the roles and scopes they need."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from finishline.api.people import Scope
from server.base.errors import NotAllowedError, NotSignedInError
from server.base.request_context import note, note_signed_in
from server.base.services import ServicesDep
from server.people.accounts import ORGANISERS, ROLES, SCOPES_OF, Holder, find_holder, note_use

bearer = HTTPBearer(auto_error=False, description="An API token: `Bearer fl_...`")
BearerDep = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


@dataclass(frozen=True)
class Caller:
    """The authenticated user of a request, with role and scopes.

    The source is "console", None for the API.
    """

    user_id: int
    token_id: int
    name: str
    role: str
    scopes: frozenset[str] = frozenset()
    source: str | None = None
    organisation_id: int | None = None

    @property
    def is_admin(self) -> bool:
        """Whether they see admins' pages; the scopes decide about changes."""
        return self.role == "admin"

    def may(self, scope: Scope) -> bool:
        """Whether their token has a scope."""
        return scope in self.scopes


def caller_of(holder: Holder, *, source: str | None = None) -> Caller:
    """The Caller behind a token."""
    return Caller(
        user_id=holder.user_id,
        token_id=holder.token_id,
        name=holder.name,
        role=holder.role,
        scopes=frozenset(holder.scopes).intersection(SCOPES_OF[holder.role]),
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


def require_allowed(caller: Caller, request: Request, roles: tuple[str, ...], scope: Scope) -> None:
    """Raise NotAllowedError unless the caller's role and token scopes allow a request.

    A read needs the scope `read`; a change needs `scope`.
    """
    if caller.role not in roles:
        *others, last = roles
        needed = f"{', '.join(others)} or {last}" if others else last
        raise NotAllowedError(f"This needs a token of role {needed}; yours is {caller.role}.")
    wanted: Scope = "read" if request.method in READING else scope
    if not caller.may(wanted):
        has = ", ".join(sorted(caller.scopes)) or "none"
        raise NotAllowedError(f"This needs a token with the scope {wanted}; yours has {has}.")


def require_role(*roles: str, scope: Scope) -> Callable[[Caller, Request], Awaitable[Caller]]:
    """Dependency that requires one of these roles and a token with the scope."""

    async def check(caller: CallerDep, request: Request) -> Caller:
        require_allowed(caller, request, roles, scope)
        return caller

    return check


SubmitterDep = Annotated[Caller, Depends(require_role("submitter", *ORGANISERS, scope="submit"))]
OrganiserDep = Annotated[Caller, Depends(require_role(*ORGANISERS, scope="organise"))]
AdminDep = Annotated[Caller, Depends(require_role("admin", scope="administer"))]
WorkerDep = Annotated[Caller, Depends(require_role("worker", scope="work"))]
# Callers who manage their own tokens.
OwnTokensDep = Annotated[Caller, Depends(require_role(*ROLES, scope="tokens"))]
