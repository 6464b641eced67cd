"""Who reads what everybody may read, most of it: nobody has to be signed in to ask."""

from typing import Annotated

from fastapi import Depends, Request

from server.accounts.roles import ORGANISERS
from server.accounts.service import find_holder
from server.dependencies import Caller, Parts, PartsDep, caller_of
from server.errors import NotSignedInError
from server.request_context import note_signed_in
from server.sessions.dependencies import signed_in_or_none
from server.viewer import ANYBODY, ORGANISER, Viewer

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
