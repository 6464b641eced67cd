"""Pages that links in mails open. Mail programs open links too, so only a button acts."""

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from server.base.services import ServicesDep
from server.notices.messages import Purpose, find_by_link
from server.notices.outbox import give_up
from server.notices.subscriptions import confirm
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/mail/confirm/{confirm_token}")
def confirm_page(confirm_token: str, services: ServicesDep) -> HTMLResponse:
    """Ask whether notices may be sent to an address."""
    return _asked(services, confirm_token, "confirm")


@router.post("/mail/confirm/{confirm_token}")
def confirm_address(confirm_token: str, services: ServicesDep) -> Response:
    """Confirm a mail address: from now on events are mailed to it."""
    with services.database.write() as session:
        found = find_by_link(session, confirm_token, "confirm")
        confirm(found)
    return _page(found.address, "confirm", done=True)


@router.get("/mail/unsubscribe/{unsubscribe_token}")
def unsubscribe_page(unsubscribe_token: str, services: ServicesDep) -> HTMLResponse:
    """Ask whether notices to an address are to end."""
    return _asked(services, unsubscribe_token, "unsubscribe")


@router.post("/mail/unsubscribe/{unsubscribe_token}")
def unsubscribe(unsubscribe_token: str, services: ServicesDep) -> Response:
    """End a subscription: by the button of the page, or by that of a mail program (RFC 8058)."""
    with services.database.write() as session:
        found = find_by_link(session, unsubscribe_token, "unsubscribe")
        give_up(session, found, None)
    return _page(found.address, "unsubscribe", done=True)


def _asked(services: ServicesDep, token: str, purpose: Purpose) -> HTMLResponse:
    with services.database.read() as session:
        found = find_by_link(session, token, purpose)
    return _page(found.address, purpose, done=False)


def _page(address: str, purpose: Purpose, *, done: bool) -> HTMLResponse:
    page = render("mail_link.html", address=address, purpose=purpose, done=done)
    # The address of this page can end the subscription, so no referrer gives it to other sites.
    return HTMLResponse(
        page, headers={"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    )
