"""Notifications of a user: webhooks with their deliveries, and mail subscriptions."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from server.base.errors import ContentError
from server.notices import subscriptions
from server.notices.endpoints import delivery_view, webhook_view
from server.notices.events import ABOUT, KINDS
from server.notices.outbox import give_up
from server.notices.subscriptions import (
    MailCreate,
    WebhookCreate,
    find_delivery,
    find_mail,
    find_webhook,
    list_deliveries,
    list_mails,
    list_webhooks,
)
from server.pages.console_page import AnyoneDep, Console, Done
from server.people.accounts import SUBMITTERS
from server.people.declared import filled
from server.people.dependencies import require_one_of
from server.people.sessions import Notice
from server.people.signed_in import Fields, FormDep

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/notices"
SHOWN = 50
OF_MAIL = ("id", "address", "kinds", "scope", "benchmark_id", "confirmed_at")
USUAL = ("submission.verified", "submission.rejected", "submission.inconclusive", "record.set")
IdDep = Annotated[str, Path(max_length=20)]
NumberDep = Annotated[int, Query(ge=1, le=2**31 - 1)]


def _of_submitters(console: AnyoneDep) -> Console:
    """Require a user who may submit. Raises NotAllowedError."""
    require_one_of(console.caller, SUBMITTERS)
    return console


SubmitterDep = Annotated[Console, Depends(_of_submitters)]


@router.get(ADDRESS)
def notices_page(console: SubmitterDep) -> HTMLResponse:
    """Webhooks, addresses, and the forms that make them."""
    return _page(console, {"scope": "own"} | dict.fromkeys(USUAL, "on"))


@router.post(ADDRESS + "/webhooks")
def add_webhook(console: SubmitterDep, form: FormDep) -> Response:
    """Make a webhook; the answer shows its secret, once."""

    def make(session: Session, wanted: WebhookCreate) -> Done:
        hook = subscriptions.make_webhook(session, console.services, console.caller, wanted)
        told = Notice(f"Webhook {hook.id} is made. This secret signs its posts:", hook.secret)
        return f"{ADDRESS}/{hook.id}", told

    page = partial(_page, console, form)
    return console.submit(WebhookCreate, _wanted(form, "url"), make, page)


@router.post(ADDRESS + "/mails")
def add_mail(console: SubmitterDep, form: FormDep) -> Response:
    """Ask to be written to."""

    def subscribe(session: Session, wanted: MailCreate) -> Done:
        made = subscriptions.subscribe(session, console.services, console.caller, wanted)
        told = f"Notices go to {made.address}."
        if made.confirmed_at is None:
            told = f"A mail was sent to {made.address}; open its link to receive notices."
        return ADDRESS, Notice(told)

    page = partial(_page, console, form)
    return console.submit(MailCreate, _wanted(form, "address"), subscribe, page)


@router.post(ADDRESS + "/mails/{mail_id}/end")
def end_mail(mail_id: IdDep, console: SubmitterDep, _form: FormDep) -> Response:
    """Write no more to an address."""

    def end(session: Session) -> Done:
        found = find_mail(session, console.caller, mail_id)
        give_up(session, found, None)
        return ADDRESS, Notice(f"{found.address} gets no more of these notices.")

    return console.change(end, partial(_page, console, {}))


@router.get(ADDRESS + "/{webhook_id}")
def webhook_page(webhook_id: IdDep, console: SubmitterDep) -> HTMLResponse:
    """A webhook and its latest deliveries."""
    return _webhook_page(console, webhook_id)


@router.post(ADDRESS + "/{webhook_id}")
def change_webhook(
    webhook_id: IdDep,
    console: SubmitterDep,
    _form: FormDep,
    change: str = "",
    delivery: NumberDep = 1,
) -> Response:
    """Test, enable or delete a webhook, replace its secret, or send a message again."""

    def carry_out(session: Session) -> Done:
        hook = find_webhook(session, console.caller, webhook_id)
        own = f"{ADDRESS}/{hook.id}"
        if change == "test":
            subscriptions.ping(session, hook)
            return own, Notice("A test is queued; reload this page to see its outcome.")
        if change == "secret":
            fresh = subscriptions.replace_secret(hook)
            return own, Notice("The new secret, which signs all posts from now on:", fresh)
        if change == "enable":
            subscriptions.switch_on(hook)
            return own, Notice("The webhook is enabled.")
        if change == "resend":
            subscriptions.resend(session, hook, find_delivery(session, hook, delivery))
            return own, Notice(f"Delivery {delivery} is queued again, with the same id.")
        if change == "delete":
            subscriptions.delete_webhook(session, console.caller, hook)
            return ADDRESS, Notice(f"Webhook {webhook_id} is deleted.")
        raise ContentError(
            f"change is {change!r}, expected test, secret, enable, resend or delete."
        )

    return console.change(carry_out, partial(_webhook_page, console, webhook_id))


def _wanted(form: Fields, *names: str) -> dict[str, Any]:
    """Read a form: each ticked box is a kind; a benchmark counts only in the scope "benchmark"."""
    given = filled(form)
    wanted: dict[str, Any] = {name: given[name] for name in (*names, "scope") if name in given}
    wanted["kinds"] = [kind for kind in KINDS if kind in given]
    if given.get("scope") == "benchmark" and "benchmark" in given:
        wanted["benchmark"] = given["benchmark"]
    return wanted


def _page(console: Console, typed: Mapping[str, Any], **wrong: Any) -> HTMLResponse:
    services = console.services
    with services.database.read() as session:
        hooks = [webhook_view(hook) for hook in list_webhooks(session, console.caller)]
        mails = [{name: getattr(each, name) for name in OF_MAIL}
                 for each in list_mails(session, console.caller)]  # fmt: skip
    return console.page(
        "notices.html",
        typed=typed,
        hooks=hooks,
        mails=mails,
        kinds=list(ABOUT.items()),
        benchmarks=sorted(services.benchmarks),
        sends_mail=services.settings.smtp_url is not None,
        **wrong,
    )


def _webhook_page(console: Console, webhook_id: str, **wrong: Any) -> HTMLResponse:
    with console.services.database.read() as session:
        hook = find_webhook(session, console.caller, webhook_id)
        found = list_deliveries(session, hook, state=None, limit=SHOWN)
        deliveries = [delivery_view(item) for item in found]
    shown = webhook_view(hook)
    return console.page("webhook.html", hook=shown, deliveries=deliveries, **wrong)
