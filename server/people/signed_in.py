"""Who is signed in: as a dependency of pages, as a viewer, and how often one may try."""

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from server.base.errors import NotSignedInError
from server.base.models import ConsoleSession
from server.base.request_context import note_signed_in
from server.base.viewer import ANYBODY, ORGANISER, Viewer
from server.people.accounts import ORGANISERS, ROLES, find_holder, holder_of
from server.people.dependencies import Caller, Parts, PartsDep, caller_of, require_allowed
from server.people.sessions import (
    CSRF_FIELD,
    SignedIn,
    ends_at,
    find_session,
    is_stale,
    note_seen,
    read_cookie,
    require_csrf,
    require_same_origin,
)

SIGN_IN = "/console/sign-in"
SOURCE = "console"
MOST_FIELDS = 100
Fields = dict[str, str]


def signed_in_or_none(request: Request, parts: Parts) -> SignedIn | None:
    """Who is signed in with this browser, if anybody."""
    secret = read_cookie(request, parts.settings)
    if secret is None:
        return None
    try:
        with parts.database.read() as session:
            found = find_session(session, secret)
    except NotSignedInError:
        return None
    request.app.state.last_uses.note(found.token_id)
    note_signed_in(secret, found.token.role)
    if is_stale(found):
        with parts.database.write() as session:
            note_seen(session, secret)
    return _signed_in(found, secret)


def _signed_in(found: ConsoleSession, secret: str) -> SignedIn:
    token = found.token
    return SignedIn(
        secret=secret,
        caller=caller_of(holder_of(token), source=SOURCE),
        ends_at=ends_at(found),
        token_expires_at=token.expires_at,
        has_notices=bool(found.notices),
    )


def get_signed_in(request: Request, parts: PartsDep) -> SignedIn:
    """Who is signed in. A page that is asked for leads to the sign-in; a form is refused."""
    found = signed_in_or_none(request, parts)
    if found is not None:
        return found
    if request.method != "GET":
        raise NotSignedInError(
            "Your session has ended, and nothing was changed. Sign in at /console/sign-in in "
            "another tab, come back here and send the form again from the page before this one."
        )
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    address = f"{SIGN_IN}?{urlencode({'next': asked})}"
    raise HTTPException(303, "Sign in first.", headers={"Location": address})


SignedInDep = Annotated[SignedIn, Depends(get_signed_in)]


def get_organiser(request: Request, signed_in: SignedInDep) -> SignedIn:
    """An organiser who is signed in; to change something with a token that may."""
    require_allowed(signed_in.caller, request, ORGANISERS, "organise")
    return signed_in


def get_admin(request: Request, signed_in: SignedInDep) -> SignedIn:
    """An admin who is signed in; to change something with a token that may."""
    require_allowed(signed_in.caller, request, ("admin",), "administer")
    return signed_in


def get_token_owner(request: Request, signed_in: SignedInDep) -> SignedIn:
    """Somebody who looks after their own tokens."""
    require_allowed(signed_in.caller, request, ROLES, "tokens")
    return signed_in


ConsoleDep = Annotated[SignedIn, Depends(get_organiser)]
AdminConsoleDep = Annotated[SignedIn, Depends(get_admin)]
AccountDep = Annotated[SignedIn, Depends(get_token_owner)]


async def read_fields(request: Request) -> Fields:
    """The text fields of a form that was sent; a browser's line ends become ours."""
    form = await request.form(max_files=0, max_fields=MOST_FIELDS)
    return {name: _readable(value) for name, value in form.items() if isinstance(value, str)}


def _readable(text: str) -> str:
    # A form in parts may name an encoding that has half characters: neither a page nor a hash
    # can be made of one.
    return text.encode(errors="replace").decode().replace("\r\n", "\n")


FieldsDep = Annotated[Fields, Depends(read_fields)]


def _own_form(request: Request, parts: PartsDep, signed_in: SignedInDep, sent: FieldsDep) -> Fields:
    """The fields of a form that a page of this session sent, without the token that shows it."""
    require_same_origin(request, parts.settings)
    require_csrf(signed_in.secret, sent.get(CSRF_FIELD, ""))
    return {name: value for name, value in sent.items() if name != CSRF_FIELD}


FormDep = Annotated[Fields, Depends(_own_form)]


BEARER = "bearer "


def viewer_for(caller: Caller) -> Viewer:
    """The viewer that a caller is: of their own, their organisation's, or as an organiser of all.

    A worker's token shows no more than its user's own, for it lies on a machine that others look
    after; one that may not read shows nothing.
    """
    if not caller.may("read"):
        return ANYBODY
    if caller.role in ORGANISERS:
        return ORGANISER
    organisation_id = None if caller.role == "worker" else caller.organisation_id
    return Viewer(user_ids=(caller.user_id,), organisation_id=organisation_id)


def get_viewer(request: Request, parts: PartsDep) -> Viewer:
    """The owner of the token that came with the request or the browser, or anybody.

    A token that is none is anybody's: what is public is shown to whoever asks.
    """
    sent = request.headers.get("authorization", "")
    if sent.lower().startswith(BEARER):
        return _of_token(request, parts, sent[len(BEARER) :].strip())
    signed_in = signed_in_or_none(request, parts)
    return ANYBODY if signed_in is None else viewer_for(signed_in.caller)


ViewerDep = Annotated[Viewer, Depends(get_viewer)]


def _of_token(request: Request, parts: Parts, secret: str) -> Viewer:
    try:
        with parts.database.read_columns() as connection:
            holder = find_holder(connection, secret)
    except NotSignedInError:
        return ANYBODY
    note_signed_in(secret, holder.role)
    request.app.state.last_uses.note(holder.token_id)
    return viewer_for(caller_of(holder))
