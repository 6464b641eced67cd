"""What endpoints ask for: the application's parts, and who is asking."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from rules.benchmark import Benchmark
from server.accounts.service import find_token
from server.artifacts import ArtifactStore
from server.database import Database
from server.errors import NotAllowedError, NotSignedInError
from server.observability.context import note, note_signed_in
from server.settings import Settings

bearer = HTTPBearer(auto_error=False, description="An API token: `Bearer fl_...`")
BearerDep = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


@dataclass(frozen=True)
class Parts:
    """Everything an application was built from; one per process."""

    settings: Settings
    database: Database
    artifacts: ArtifactStore
    benchmarks: dict[str, Benchmark]


def get_parts(request: Request) -> Parts:
    """The parts of the running application."""
    parts: Parts = request.app.state.parts
    return parts


PartsDep = Annotated[Parts, Depends(get_parts)]


@dataclass(frozen=True)
class Caller:
    """Who is asking, in which role, and from where if not over the API: "console"."""

    user_id: int
    token_id: int
    name: str
    role: str
    source: str | None = None


def bearer_secret(credentials: BearerDep) -> str:
    """The bearer token of the request."""
    if credentials is None:
        raise NotSignedInError(
            "This needs an API token: send the header 'Authorization: Bearer …'."
        )
    return credentials.credentials


SecretDep = Annotated[str, Depends(bearer_secret)]


def get_caller(parts: PartsDep, secret: SecretDep) -> Caller:
    """The owner of the token that came with the request."""
    with parts.database.read() as session:
        token = find_token(session, secret)
        note(user_id=token.user_id)
        note_signed_in(token.role)
        return Caller(
            user_id=token.user_id, token_id=token.id, name=token.user.name, role=token.role
        )


CallerDep = Annotated[Caller, Depends(get_caller)]


def require_role(*roles: str) -> Callable[[Caller], Caller]:
    """A dependency that lets only callers of these roles through."""

    def check(caller: CallerDep) -> Caller:
        if caller.role not in roles:
            needed = " or ".join(roles)
            raise NotAllowedError(f"This needs a token of role {needed}; yours is {caller.role}.")
        return caller

    return check


SubmitterDep = Annotated[Caller, Depends(require_role("submitter", "organiser"))]
OrganiserDep = Annotated[Caller, Depends(require_role("organiser"))]
WorkerDep = Annotated[Caller, Depends(require_role("worker"))]
