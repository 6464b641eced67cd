"""Subscriptions: users add, test and end webhooks and mail addresses."""

import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.errors import MessageError
from email.headerregistry import Address
from typing import Annotated, Any, Literal, Self

from fastapi import Path, Query
from pydantic import AfterValidator, Field, StrictBool, model_validator
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from server.base.database import Services, benchmarks_of, state_of, utc_now
from server.base.errors import ConflictError, NotAllowedError, NotFoundError, no_such
from server.base.events import NoticeWakeup, wake_after_commit
from server.base.forms import Body, example
from server.base.models import Message, Receiver
from server.benchmarks.definitions import find_benchmark
from server.notices.events import API, CONFIRM, KINDS, TEST, queue
from server.notices.messages import check_url, new_secret
from server.notices.outbox import give_up
from server.people.audit import Subject, record
from server.people.callers import Caller, Fields
from server.people.declared import Form, Routes, filled

SHAPE = r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$"


def _mail_address(address: str) -> str:
    try:
        Address(addr_spec=address)
    except (ValueError, MessageError) as error:
        raise ValueError("expected one address, as in ada@example.org") from error
    return address


MailAddress = Annotated[str, Field(max_length=254, pattern=SHAPE), AfterValidator(_mail_address)]


class Wanted(Body):
    """The events to get: of your submissions, of a benchmark, or all (organisers only)."""

    kinds: list[Literal[KINDS]] = Field(  # type: ignore[valid-type]
        min_length=1, max_length=len(KINDS), description="Each once, in any order."
    )
    scope: Literal["own", "benchmark", "all"] = "own"
    benchmark: str | None = Field(
        default=None, max_length=100, description="For the scope benchmark."
    )

    @model_validator(mode="after")
    def _names_its_benchmark(self) -> Self:
        if (self.scope == "benchmark") != (self.benchmark is not None):
            raise ValueError("expected a benchmark with the scope benchmark, and only with it")
        return self


class WebhookCreate(Wanted):
    """A webhook to create: its URL and its events."""

    model_config = example(
        url="https://hooks.example.org/finishline",
        kinds=["submission.verified", "submission.rejected"],
        scope="own",
    )

    url: str = Field(min_length=1, max_length=2000)


class WebhookChange(Body):
    """Whether a webhook is enabled."""

    model_config = example(enabled=True)

    enabled: StrictBool


class MailCreate(Wanted):
    """A mail subscription to create: its address and its events."""

    address: MailAddress


class WebhookView(Schema):
    """A webhook without its secret."""

    id: str
    url: str
    kinds: list[str]
    scope: str
    benchmark: str | None
    created_at: datetime
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_because: str | None


class WebhookCreated(WebhookView):
    """A webhook with a new secret, which is shown only once."""

    secret: str


class WebhookList(Schema):
    """Your webhooks, newest first."""

    webhooks: list[WebhookView]


class MailView(Schema):
    """A mail subscription."""

    id: str
    address: str
    kinds: list[str]
    scope: str
    benchmark_id: str | None
    confirmed_at: datetime | None


class TryView(Schema):
    """A delivery attempt: a status and the start of the response, or the error instead."""

    at: datetime
    status: int | None
    milliseconds: float
    answer: str
    error: str | None


class DeliveryView(Schema):
    """A message on its way: `state` is waiting, delivered or failed. `due_at` is the next try."""

    id: int
    message_id: str
    kind: str
    state: str
    created_at: datetime
    due_at: datetime | None
    ended_at: datetime | None
    tries: list[TryView]


class DeliveryList(Schema):
    """The latest deliveries of a webhook, newest first."""

    deliveries: list[DeliveryView]


def delivery_view(message: Message) -> DeliveryView:
    """Make the view of a stored message."""
    return DeliveryView.of(message, due_at=message.due_at if message.state == "waiting" else None)


router = Routes(tags=["notices"])
CONSOLE = "/console/notices"
ONE = CONSOLE + "/{webhook_id}"
WebhookId = Annotated[str, Path(max_length=20)]
DeliveryId = Annotated[int, Path(ge=1, le=2**31 - 1)]
MOST_WEBHOOKS, MOST_ADDRESSES = 20, 5
# Limits on unwanted mail to other people's addresses: to one mailbox, from one user.
CONFIRMATIONS_PER_DAY, CONFIRMATIONS_BY_USER = 3, 10


def _wanted(fields: Fields) -> Mapping[str, Any]:
    """Read a form: each ticked box is a kind. A benchmark counts only in the scope "benchmark"."""
    given: dict[str, Any] = filled(fields)
    ticked = [kind for kind in KINDS if given.pop(kind, None)]
    if given.get("scope") != "benchmark":
        given.pop("benchmark", None)
    return given | {"kinds": ticked}


@router.read("/webhooks", role="submitter")
def get_webhooks(session: Session, caller: Caller) -> WebhookList:
    """List your webhooks, newest first, without their secrets."""
    found = _list_own(session, caller, "webhook")
    return WebhookList(webhooks=[WebhookView.of(hook) for hook in found])


def list_mails(session: Session, caller: Caller) -> list[Receiver]:
    """List the caller's live mail addresses, newest first."""
    return [each for each in _list_own(session, caller, "mail") if each.disabled_at is None]


def _list_own(session: Session, caller: Caller, channel: str) -> list[Receiver]:
    own = (Receiver.user_id == caller.user_id, Receiver.channel == channel)
    order = (Receiver.created_at.desc(), Receiver.id)
    return list(session.scalars(select(Receiver).where(*own).order_by(*order)))


def find_webhook(session: Session, caller: Caller, webhook_id: str) -> Receiver:
    """Find a webhook of the caller's. Raises NotFoundError, also for somebody else's."""
    hook = session.get(Receiver, webhook_id)
    if hook is None or (hook.user_id, hook.channel) != (caller.user_id, "webhook"):
        raise no_such("webhook", webhook_id, of="You have no")
    return hook


@router.read("/webhooks/{webhook_id}", role="submitter")
def get_webhook(session: Session, caller: Caller, webhook_id: WebhookId) -> WebhookView:
    """Read a webhook of yours."""
    return WebhookView.of(find_webhook(session, caller, webhook_id))


@router.read("/webhooks/{webhook_id}/deliveries", role="submitter")
def get_deliveries(
    session: Session,
    caller: Caller,
    webhook_id: WebhookId,
    state: Annotated[Literal["waiting", "delivered", "failed"] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DeliveryList:
    """List a webhook's deliveries within 30 days, newest first, with the outcome of each try."""
    hook = find_webhook(session, caller, webhook_id)
    query = select(Message).where(Message.receiver_id == hook.id)
    if state is not None:
        query = query.where(Message.state == state)
    found = session.scalars(query.order_by(Message.id.desc()).limit(limit))
    return DeliveryList(deliveries=[delivery_view(each) for each in found])


def _make(session: Session, caller: Caller, wanted: Wanted, **columns: Any) -> Receiver:
    """Add a receiver for the caller. Raises NotAllowedError or NotFoundError.

    Its events include embargoed submissions of the caller, and go on after the token's end.
    """
    if wanted.scope == "all" and not caller.is_organiser:
        raise NotAllowedError("Only an organiser may subscribe to all events; name a benchmark.")
    if wanted.benchmark is not None:
        find_benchmark(benchmarks_of(session), wanted.benchmark)
    made = Receiver(
        id=secrets.token_hex(8)[:15],
        user_id=caller.user_id,
        kinds=sorted(set(wanted.kinds)),
        scope=wanted.scope,
        benchmark_id=wanted.benchmark,
        created_at=utc_now(),
        **columns,
    )
    session.add(made)
    return made


@router.command(
    "/webhooks",
    Form(
        CONSOLE + "/webhooks",
        "Webhook {0.id} is made. This secret signs its posts:",
        page=CONSOLE,
        once="secret",
        read=_wanted,
    ),
    role="submitter",
    status=201,
)
def create_webhook(session: Session, caller: Caller, body: WebhookCreate) -> WebhookCreated:
    """Create a webhook. The secret to sign its messages is only in this response."""
    if len(_list_own(session, caller, "webhook")) >= MOST_WEBHOOKS:
        raise ConflictError(f"You have {MOST_WEBHOOKS} webhooks; delete one first.")
    settings = state_of(session, Services).settings
    check_url(body.url, private_allowed=settings.webhook_private_addresses)
    own = {"channel": "webhook", "address": body.url, "confirmed_at": utc_now()}
    hook = _make(session, caller, body, secret=new_secret(), **own)
    _record(session, caller, "webhook.create", hook, is_new=True)
    return WebhookCreated.of(hook)


def _record(
    session: Session, caller: Caller, action: str, hook: Receiver, *, is_new: bool = False
) -> None:
    """Record a subscription to everything in the audit log. Others are private."""
    if hook.scope == "all":
        told = {"url": hook.address, "kinds": hook.kinds, "scope": hook.scope}
        before, after = (None, told) if is_new else (told, None)
        record(session, caller, action, Subject("webhook", hook.id), before=before, after=after)


@router.command(
    "/webhooks/{webhook_id}/secret",
    Form(
        ONE + "/secret",
        "The new secret, which signs all posts from now on:",
        page=ONE,
        once="secret",
    ),
    role="submitter",
)
def replace_secret(session: Session, caller: Caller, webhook_id: WebhookId) -> WebhookCreated:
    """Replace the secret of a webhook. From now on only the new one signs."""
    hook = find_webhook(session, caller, webhook_id)
    hook.secret = new_secret()
    return WebhookCreated.of(hook)


@router.command(
    "/webhooks/{webhook_id}",
    Form(ONE + "/enable", "The webhook is enabled.", page=ONE, read=lambda _: {"enabled": True}),
    role="submitter",
    method="PATCH",
)
def set_webhook(
    session: Session, caller: Caller, webhook_id: WebhookId, body: WebhookChange
) -> WebhookView:
    """Enable a disabled webhook, or disable one: its waiting deliveries are dropped."""
    hook = find_webhook(session, caller, webhook_id)
    if body.enabled:
        hook.disabled_at = hook.disabled_because = hook.failing_since = None
    else:
        give_up(session, hook, "It was disabled by its owner.")
    return WebhookView.of(hook)


@router.command(
    "/webhooks/{webhook_id}",
    Form(ONE + "/delete", "Webhook {webhook_id} is deleted.", page=ONE, to=CONSOLE),
    role="submitter",
    method="DELETE",
    status=204,
)
def delete_webhook(session: Session, caller: Caller, webhook_id: WebhookId) -> None:
    """Delete a webhook and the log of its deliveries."""
    hook = find_webhook(session, caller, webhook_id)
    session.execute(delete(Message).where(Message.receiver_id == hook.id))
    session.delete(hook)
    _record(session, caller, "webhook.delete", hook)


@router.command(
    "/webhooks/{webhook_id}/test",
    Form(ONE + "/test", "A test is queued; reload this page to see its outcome.", page=ONE),
    role="submitter",
    status=202,
)
def send_test(session: Session, caller: Caller, webhook_id: WebhookId) -> DeliveryView:
    """Send a message of type webhook.test. The log of deliveries shows its outcome."""
    hook = find_webhook(session, caller, webhook_id)
    _require_on(hook)
    waiting = (Message.state == "waiting", Message.kind == TEST)
    if session.scalar(select(Message.id).where(Message.receiver_id == hook.id, *waiting)):
        raise ConflictError("A test of this webhook is already queued; wait for it.")
    content = {
        "sentence": "A test of this webhook",
        "webhook": {"id": hook.id},
        "links": {"api": f"{API}/webhooks/{hook.id}"},
    }
    return delivery_view(queue(session, TEST, content, [hook])[0])


@router.command(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}/repeat",
    Form(
        ONE + "/deliveries/{delivery_id}/resend",
        "Delivery {delivery_id} is queued again, with the same id.",
        page=ONE,
    ),
    role="submitter",
    status=202,
)
def resend_delivery(
    session: Session, caller: Caller, webhook_id: WebhookId, delivery_id: DeliveryId
) -> DeliveryView:
    """Send a message again, with the same id."""
    hook = find_webhook(session, caller, webhook_id)
    message = session.get(Message, delivery_id)
    if message is None or message.receiver_id != hook.id:
        raise no_such("delivery", delivery_id, of=f"Webhook {hook.id} has no")
    _require_on(hook)
    if message.state == "waiting":
        raise ConflictError(
            f"Delivery {message.id} is on its way; its next try is at "
            f"{message.due_at:%Y-%m-%d %H:%M:%S} UTC."
        )
    message.state, message.ended_at = "waiting", None
    message.failures, message.due_at = 0, utc_now()
    wake_after_commit(session, NoticeWakeup)
    return delivery_view(message)


def _require_on(hook: Receiver) -> None:
    if hook.disabled_at is not None:
        raise ConflictError(
            f"Webhook {hook.id} is disabled ({hook.disabled_because}); enable it first."
        )


def _subscribed_words(made: Receiver, body: MailCreate) -> str:
    if made.confirmed_at is None:
        return f"A mail was sent to {made.address}; open its link to receive notices."
    return f"Notices go to {made.address}."


@router.command(
    None,
    Form(CONSOLE + "/mails", _subscribed_words, page=CONSOLE, read=_wanted),
    role="submitter",
)
def subscribe(session: Session, caller: Caller, body: MailCreate) -> Receiver:
    """Create a mail subscription. A new address gets a mail to confirm it."""
    if state_of(session, Services).settings.smtp_url is None:
        raise ConflictError("This server sends no mail; use a webhook for the same events.")
    mails = list_mails(session, caller)
    if len(mails) >= MOST_ADDRESSES:
        raise ConflictError(f"You have {MOST_ADDRESSES} mail subscriptions; end one first.")
    confirmed = [each.address for each in mails if each.confirmed_at is not None]
    # An address with a tag behind a plus sign leads to the same mailbox.
    local, _, domain = body.address.lower().rpartition("@")
    own = {
        "channel": "mail",
        "address": body.address,
        "mailbox": f"{local.partition('+')[0]}@{domain}",
        "secret": secrets.token_hex(32),
        "confirmed_at": utc_now() if body.address in confirmed else None,
    }
    made = _make(session, caller, body, **own)
    if made.confirmed_at is None:
        _require_few_confirmations(session, made)
        queue(session, CONFIRM, {"sentence": "Confirm this address"}, [made])
    return made


@router.command(
    None,
    Form(
        CONSOLE + "/mails/{mail_id}/end", "{0.address} gets no more of these notices.", page=CONSOLE
    ),
    role="submitter",
)
def end_mail(session: Session, caller: Caller, mail_id: WebhookId) -> Receiver:
    """End a mail subscription."""
    for each in list_mails(session, caller):
        if each.id == mail_id:
            give_up(session, each, None)
            return each
    raise NotFoundError(f"You have no mail subscription {mail_id!r}.")


def _require_few_confirmations(session: Session, asked: Receiver) -> None:
    today = (
        select(func.count())
        .select_from(Message)
        .join(Message.receiver)
        .where(Message.kind == CONFIRM, Message.created_at > utc_now() - timedelta(days=1))
    )
    by_user = session.scalar(today.where(Receiver.user_id == asked.user_id)) or 0
    if by_user >= CONFIRMATIONS_BY_USER:
        raise ConflictError(
            f"You asked for {by_user} confirmation mails within a day, which is the most. Try "
            "again tomorrow."
        )
    to_mailbox = session.scalar(today.where(Receiver.mailbox == asked.mailbox)) or 0
    if to_mailbox >= CONFIRMATIONS_PER_DAY:
        raise ConflictError(
            f"{asked.address} got {to_mailbox} confirmation mails within a day; look for "
            "those, or try again tomorrow."
        )
