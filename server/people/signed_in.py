"""Signed-in users: as a dependency of pages, and as viewers."""

from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from server.base.database import utc_now
from server.base.errors import NotSignedInError
from server.base.request_context import note_signed_in
from server.base.services import Services, ServicesDep
from server.base.visibility import ANYBODY, ORGANISER, Viewer
from server.people.accounts import (
    ORGANISERS,
    SUBMITTERS,
    find_holder,
    find_session_holder,
    note_use,
)
from server.people.dependencies import Caller, caller_of, require_one_of
from server.people.sessions import (
    SignedIn,
    ends_at,
    note_page,
    require_same_origin,
    session_key,
)

SIGN_IN = "/console/sign-in"
SOURCE = "console"
MOST_FIELDS = 100
Fields = dict[str, str]


def signed_in_or_none(request: Request, services: Services) -> SignedIn | None:
    """Session of this browser, or None. Its token and user are looked up each time."""
    key = session_key(request.scope)
    if key is None or ends_at(request) <= utc_now():
        return None
    try:
        with services.database.read_columns() as connection:
            holder = find_session_holder(connection, *key)
    except NotSignedInError:
        return None
    note_signed_in(str(key), holder.role, holder.user_id)
    note_use(services.database, holder)
    return SignedIn(
        caller=caller_of(holder, source=SOURCE),
        ends_at=ends_at(request),
        token_expires_at=holder.expires_at,
    )


def get_signed_in(request: Request, services: ServicesDep) -> SignedIn:
    """Require a session: without one a page redirects to the sign-in, and a form is refused."""
    found = signed_in_or_none(request, services)
    if found is None:
        raise sign_in_first(request)
    note_page(request)
    return found


def sign_in_first(request: Request) -> HTTPException | NotSignedInError:
    """Error to a browser without a session: for a page a redirect to the sign-in, and back."""
    if request.method != "GET":
        return NotSignedInError(
            "Your session has ended, and nothing was changed. Sign in at /console/sign-in in "
            "another tab, come back here and send the form again from the page before this one."
        )
    asked = quote(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
    address = f"{SIGN_IN}?{urlencode({'next': asked})}"
    return HTTPException(303, "Sign in first.", headers={"Location": address})


SignedInDep = Annotated[SignedIn, Depends(get_signed_in)]


def get_organiser(signed_in: SignedInDep) -> SignedIn:
    """Require a signed-in organiser."""
    require_one_of(signed_in.caller, ORGANISERS)
    return signed_in


def get_admin(signed_in: SignedInDep) -> SignedIn:
    """Require a signed-in admin."""
    require_one_of(signed_in.caller, ("admin",))
    return signed_in


def get_submitter(signed_in: SignedInDep) -> SignedIn:
    """Require a signed-in user whose token is not a worker's."""
    require_one_of(signed_in.caller, SUBMITTERS)
    return signed_in


ConsoleDep = Annotated[SignedIn, Depends(get_organiser)]
AdminConsoleDep = Annotated[SignedIn, Depends(get_admin)]
SubmitterConsoleDep = Annotated[SignedIn, Depends(get_submitter)]


async def read_fields(request: Request) -> Fields:
    """Read the text fields of a form, with the browser's line ends normalised."""
    form = await request.form(max_files=0, max_fields=MOST_FIELDS)
    return {name: _readable(value) for name, value in form.items() if isinstance(value, str)}


def _readable(text: str) -> str:
    # A form in services may name an encoding that has half characters: neither a page nor a hash
    # can be made of one.
    return text.encode(errors="replace").decode().replace("\r\n", "\n")


FieldsDep = Annotated[Fields, Depends(read_fields)]


def _own_form(
    request: Request, services: ServicesDep, _signed_in: SignedInDep, sent: FieldsDep
) -> Fields:
    require_same_origin(request, services.settings)
    return sent


FormDep = Annotated[Fields, Depends(_own_form)]


BEARER = "bearer "


def viewer_for(caller: Caller) -> Viewer:
    """Viewer of a caller: sees their own and their organisation's submissions, an organiser all.

    A worker's token shows only its user's own, for it lies on a machine that others manage.
    """
    if caller.role in ORGANISERS:
        return ORGANISER
    organisation_id = None if caller.role == "worker" else caller.organisation_id
    return Viewer(user_ids=(caller.user_id,), organisation_id=organisation_id)


def get_viewer(request: Request, services: ServicesDep) -> Viewer:
    """Viewer of the request's token or session, or an anonymous one.

    A request with an invalid token is anonymous: public data is shown to everybody.
    """
    sent = request.headers.get("authorization", "")
    if sent.lower().startswith(BEARER):
        return _of_token(request, services, sent[len(BEARER) :].strip())
    signed_in = signed_in_or_none(request, services)
    return ANYBODY if signed_in is None else viewer_for(signed_in.caller)


ViewerDep = Annotated[Viewer, Depends(get_viewer)]


async def anybody() -> Viewer:
    """Viewer of what everybody sees, whoever asks."""
    return ANYBODY


AnybodyDep = Annotated[Viewer, Depends(anybody)]


def _of_token(request: Request, services: Services, secret: str) -> Viewer:
    try:
        with services.database.read_columns() as connection:
            holder = find_holder(connection, secret)
    except NotSignedInError:
        return ANYBODY
    note_signed_in(secret, holder.role, holder.user_id)
    note_use(services.database, holder)
    return viewer_for(caller_of(holder))
