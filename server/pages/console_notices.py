"""Notifications of a user: webhooks with their deliveries, and mail subscriptions."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request
from fastapi.responses import HTMLResponse, Response

from server.base.errors import ServerError
from server.base.services import Services, ServicesDep
from server.notices import subscriptions
from server.notices.announce import ABOUT, KINDS
from server.notices.schemas import (
    MailCreate,
    WebhookCreate,
    delivery_view,
    mail_view,
    webhook_view,
)
from server.notices.subscriptions import (
    find_delivery,
    find_mail,
    find_webhook,
    list_deliveries,
    list_mails,
    list_webhooks,
)
from server.pages.console_page import console_page, filled, go_on, read_form
from server.people.accounts import ORGANISERS
from server.people.dependencies import require_allowed
from server.people.sessions import Notice, SignedIn
from server.people.signed_in import Fields, FormDep, SignedInDep

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/notices"
SHOWN = 50
USUAL = ("submission.verified", "submission.rejected", "submission.inconclusive", "record.set")
IdDep = Annotated[str, Path(max_length=20)]
NumberDep = Annotated[int, Path(ge=1, le=2**31 - 1)]


def get_told(request: Request, signed_in: SignedInDep) -> SignedIn:
    """Return the signed-in user. Raises NotAllowedError unless they may submit."""
    require_allowed(signed_in.caller, request, ("submitter", *ORGANISERS), "submit")
    return signed_in


ToldDep = Annotated[SignedIn, Depends(get_told)]


@router.get(ADDRESS)
def notices_page(services: ServicesDep, signed_in: ToldDep) -> HTMLResponse:
    """Webhooks, addresses, and the forms that make them."""
    return _page(services, signed_in, {"scope": "own"} | dict.fromkeys(USUAL, "on"))


@router.post(ADDRESS + "/webhooks")
def add_webhook(services: ServicesDep, signed_in: ToldDep, form: FormDep) -> Response:
    """Make a webhook; the next page shows its secret, once."""
    wanted, errors = read_form(WebhookCreate, _wanted(form, "url"))
    if wanted is None:
        return _page(services, signed_in, form, errors=errors)
    try:
        with services.database.write() as session:
            hook = subscriptions.make_webhook(session, services, signed_in.caller, wanted)
    except ServerError as error:
        return _page(services, signed_in, form, refusal=error)
    told = Notice(f"Webhook {hook.id} is made. This secret signs its posts:", hook.secret)
    return go_on(services, signed_in, f"{ADDRESS}/{hook.id}", told)


@router.post(ADDRESS + "/mails")
def add_mail(services: ServicesDep, signed_in: ToldDep, form: FormDep) -> Response:
    """Ask to be written to."""
    wanted, errors = read_form(MailCreate, _wanted(form, "address"))
    if wanted is None:
        return _page(services, signed_in, form, errors=errors)
    try:
        with services.database.write() as session:
            made = subscriptions.subscribe(session, services, signed_in.caller, wanted)
    except ServerError as error:
        return _page(services, signed_in, form, refusal=error)
    if made.verified_at is not None:
        told = f"Notices go to {made.address}."
    else:
        told = f"A mail is on its way to {made.address}; notices follow once its link is opened."
    return go_on(services, signed_in, ADDRESS, Notice(told))


@router.post(ADDRESS + "/mails/{mail_id}/end")
def end_mail(mail_id: IdDep, services: ServicesDep, signed_in: ToldDep, _form: FormDep) -> Response:
    """Write no more to an address."""
    with services.database.write() as session:
        found = find_mail(session, signed_in.caller, mail_id)
        subscriptions.end_subscription(session, found)
    return go_on(services, signed_in, ADDRESS, Notice(f"{found.address} is sent no more of these."))


@router.get(ADDRESS + "/{webhook_id}")
def webhook_page(webhook_id: IdDep, services: ServicesDep, signed_in: ToldDep) -> HTMLResponse:
    """A webhook and its latest deliveries."""
    return _webhook_page(services, signed_in, webhook_id)


@router.post(ADDRESS + "/{webhook_id}/test")
def send_test(
    webhook_id: IdDep, services: ServicesDep, signed_in: ToldDep, _form: FormDep
) -> Response:
    """Send a test message."""
    try:
        with services.database.write() as session:
            subscriptions.ping(session, find_webhook(session, signed_in.caller, webhook_id))
    except ServerError as error:
        return _webhook_page(services, signed_in, webhook_id, refusal=error)
    told = Notice("A test is on its way; load this page again to see what came of it.")
    return go_on(services, signed_in, f"{ADDRESS}/{webhook_id}", told)


@router.post(ADDRESS + "/{webhook_id}/secret")
def replace_secret(
    webhook_id: IdDep, services: ServicesDep, signed_in: ToldDep, _form: FormDep
) -> Response:
    """Make a fresh secret; the next page shows it, once."""
    with services.database.write() as session:
        fresh = subscriptions.replace_secret(find_webhook(session, signed_in.caller, webhook_id))
    told = Notice("This secret signs from now on; for a day the earlier one does as well:", fresh)
    return go_on(services, signed_in, f"{ADDRESS}/{webhook_id}", told)


@router.post(ADDRESS + "/{webhook_id}/enable")
def enable(
    webhook_id: IdDep, services: ServicesDep, signed_in: ToldDep, _form: FormDep
) -> Response:
    """Post to a webhook again."""
    with services.database.write() as session:
        subscriptions.switch_on(find_webhook(session, signed_in.caller, webhook_id))
    return go_on(services, signed_in, f"{ADDRESS}/{webhook_id}", Notice("It is switched on again."))


@router.post(ADDRESS + "/{webhook_id}/delete")
def delete(
    webhook_id: IdDep, services: ServicesDep, signed_in: ToldDep, _form: FormDep
) -> Response:
    """Delete a webhook."""
    with services.database.write() as session:
        hook = find_webhook(session, signed_in.caller, webhook_id)
        subscriptions.delete_webhook(session, signed_in.caller, hook)
    return go_on(services, signed_in, ADDRESS, Notice(f"Webhook {webhook_id} is deleted."))


@router.post(ADDRESS + "/{webhook_id}/deliveries/{delivery_id}/resend")
def resend(
    webhook_id: IdDep,
    delivery_id: NumberDep,
    services: ServicesDep,
    signed_in: ToldDep,
    _form: FormDep,
) -> Response:
    """Send a message again."""
    try:
        with services.database.write() as session:
            hook = find_webhook(session, signed_in.caller, webhook_id)
            subscriptions.resend(session, hook, find_delivery(session, hook, delivery_id))
    except ServerError as error:
        return _webhook_page(services, signed_in, webhook_id, refusal=error)
    told = Notice(f"Delivery {delivery_id} is on its way again, with the same id.")
    return go_on(services, signed_in, f"{ADDRESS}/{webhook_id}", told)


def _wanted(form: Fields, *names: str) -> dict[str, Any]:
    """Read a form: each ticked box is a kind; a benchmark counts only in the scope "benchmark"."""
    given = filled(form)
    wanted: dict[str, Any] = {name: given[name] for name in (*names, "scope") if name in given}
    wanted["kinds"] = [kind for kind in KINDS if kind in given]
    if given.get("scope") == "benchmark" and "benchmark" in given:
        wanted["benchmark"] = given["benchmark"]
    return wanted


def _page(
    services: Services, signed_in: SignedIn, typed: Mapping[str, Any], **wrong: Any
) -> HTMLResponse:
    with services.database.read() as session:
        hooks = [webhook_view(hook) for hook in list_webhooks(session, signed_in.caller)]
        mails = [mail_view(item) for item in list_mails(session, signed_in.caller)]
    return console_page(
        services,
        signed_in,
        "notices.html",
        typed=typed,
        hooks=[hook.model_dump(mode="json") for hook in hooks],
        mails=[mail.model_dump(mode="json") for mail in mails],
        kinds=list(ABOUT.items()),
        benchmarks=sorted(services.benchmarks),
        sends_mail=services.settings.smtp_url is not None,
        **wrong,
    )


def _webhook_page(
    services: Services, signed_in: SignedIn, webhook_id: str, **wrong: Any
) -> HTMLResponse:
    with services.database.read() as session:
        hook = find_webhook(session, signed_in.caller, webhook_id)
        found = list_deliveries(session, hook, state=None, limit=SHOWN)
        deliveries = [delivery_view(item).model_dump(mode="json") for item in found]
    return console_page(
        services,
        signed_in,
        "webhook.html",
        hook=webhook_view(hook).model_dump(mode="json"),
        deliveries=deliveries,
        **wrong,
    )
