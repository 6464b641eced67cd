"""What every page of the console has in common: who is signed in, what is told once, errors."""

from collections.abc import Mapping
from typing import Any

from fastapi.responses import HTMLResponse, RedirectResponse

from server.errors import ServerError
from server.pages.forms import Errors
from server.people.dependencies import Parts
from server.people.sessions import Notice, SignedIn, csrf_token, leave_notice, take_notices
from web.render import render


def console_page(
    parts: Parts,
    signed_in: SignedIn,
    template: str,
    *,
    typed: Mapping[str, Any] | None = None,
    errors: Errors | None = None,
    refusal: ServerError | None = None,
    **context: Any,
) -> HTMLResponse:
    """A page of the console; with `errors` or a `refusal` that of a form that changed nothing.

    `typed` is what the form's fields hold: what was typed before, or what is proposed.
    """
    status = refusal.status if refusal is not None else 422 if errors else 200
    page = render(
        f"console/{template}",
        account={"name": signed_in.caller.name, "role": signed_in.caller.role},
        csrf=csrf_token(signed_in.secret),
        notices=_notices(parts, signed_in),
        typed=dict(typed or {}),
        errors=errors or {},
        refusal=refusal.detail if refusal is not None else None,
        **context,
    )
    return HTMLResponse(page, status_code=status)


def _notices(parts: Parts, signed_in: SignedIn) -> list[dict[str, Any]]:
    if not signed_in.has_notices:
        return []
    with parts.database.write() as session:
        return [vars(notice) for notice in take_notices(session, signed_in.secret)]


def go_on(parts: Parts, signed_in: SignedIn, address: str, notice: Notice) -> RedirectResponse:
    """To the page that shows what a form changed, and says so."""
    with parts.database.write() as session:
        leave_notice(session, signed_in.secret, notice)
    return RedirectResponse(address, status_code=303)
