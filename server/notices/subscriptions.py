"""Subscriptions: webhooks and mail addresses that a user adds, tests and ends."""

import secrets
from datetime import timedelta
from email.errors import MessageError
from email.headerregistry import Address
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.base.errors import ConflictError, NotAllowedError, NotFoundError, no_such
from server.base.events import NoticeWakeup, wake_after_commit
from server.base.forms import Body, example
from server.base.models import Message, Receiver
from server.base.services import Services
from server.benchmarks.queries import find_benchmark
from server.notices.events import ALL, API, CONFIRM, KINDS, TEST, EventKind, is_active, queue
from server.notices.webhooks import check_url, new_secret
from server.people.audit import Subject, record
from server.people.dependencies import Caller

MOST_WEBHOOKS, MOST_ADDRESSES = 20, 5
# Limits on unwanted mail to addresses that somebody else entered: to one mailbox, from one user.
CONFIRMATIONS_PER_DAY, CONFIRMATIONS_BY_USER = 3, 10
SHAPE = r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$"


def _mail_address(address: str) -> str:
    """Parse an address as mail programs do. Raises ValueError."""
    try:
        Address(addr_spec=address)
    except (ValueError, MessageError) as error:
        raise ValueError("expected one address, as in ada@example.org") from error
    return address


MailAddress = Annotated[str, Field(max_length=254, pattern=SHAPE), AfterValidator(_mail_address)]


class Wanted(Body):
    """Filter of events: of one's own submissions, of a benchmark, or all (organisers only)."""

    kinds: list[EventKind] = Field(
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
    """Webhook to create: its URL and its events."""

    model_config = example(
        url="https://hooks.example.org/finishline",
        kinds=["submission.verified", "submission.rejected"],
        scope="own",
    )

    url: str = Field(min_length=1, max_length=2000)


class MailCreate(Wanted):
    """Mail subscription to create: its address and its events."""

    address: MailAddress


def list_webhooks(session: Session, caller: Caller) -> list[Receiver]:
    """List the caller's webhooks, newest first."""
    return _list_own(session, caller, "webhook")


def list_mails(session: Session, caller: Caller) -> list[Receiver]:
    """List the caller's mail addresses that have not ended, newest first."""
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


def find_mail(session: Session, caller: Caller, mail_id: str) -> Receiver:
    """Find an address of the caller's. Raises NotFoundError, also for somebody else's."""
    found = [each for each in list_mails(session, caller) if each.id == mail_id]
    if not found:
        raise NotFoundError(f"You have no mail subscription {mail_id!r}.")
    return found[0]


def list_deliveries(
    session: Session, hook: Receiver, *, state: str | None, limit: int
) -> list[Message]:
    """List the latest messages to a webhook, newest first."""
    query = select(Message).where(Message.receiver_id == hook.id)
    if state is not None:
        query = query.where(Message.state == state)
    return list(session.scalars(query.order_by(Message.id.desc()).limit(limit)))


def find_delivery(session: Session, hook: Receiver, delivery_id: int) -> Message:
    """Find a message to a webhook. Raises NotFoundError."""
    message = session.get(Message, delivery_id)
    if message is None or message.receiver_id != hook.id:
        raise no_such("delivery", delivery_id, of=f"Webhook {hook.id} has no")
    return message


def _make(
    session: Session, services: Services, caller: Caller, wanted: Wanted, **columns: Any
) -> Receiver:
    """Write a receiver of the caller's.

    Its events include submissions under embargo that the caller may read, and go on after the
    token has ended. Raises NotAllowedError, or NotFoundError for an unknown benchmark.
    """
    if wanted.scope == ALL and not caller.is_organiser:
        raise NotAllowedError("Only an organiser may subscribe to all events; name a benchmark.")
    if wanted.benchmark is not None:
        find_benchmark(services.benchmarks, wanted.benchmark)
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


def make_webhook(
    session: Session, services: Services, caller: Caller, wanted: WebhookCreate
) -> Receiver:
    """Create a webhook of the caller's, with a secret that its response shows once."""
    if len(list_webhooks(session, caller)) >= MOST_WEBHOOKS:
        raise ConflictError(f"You have {MOST_WEBHOOKS} webhooks; delete one first.")
    check_url(wanted.url, private_allowed=services.settings.webhook_private_addresses)
    own = {"channel": "webhook", "address": wanted.url, "confirmed_at": utc_now()}
    hook = _make(session, services, caller, wanted, secret=new_secret(), **own)
    _record(session, caller, "webhook.create", hook)
    return hook


def _record(session: Session, caller: Caller, action: str, hook: Receiver) -> None:
    """Write a subscription to everything to the audit log; others are private and left out."""
    if hook.scope != ALL:
        return
    told = {"url": hook.address, "kinds": hook.kinds, "scope": hook.scope}
    before, after = (None, told) if action == "webhook.create" else (told, None)
    subject = Subject("webhook", hook.id)
    record(session, caller, action, subject, reason=None, before=before, after=after)


def replace_secret(hook: Receiver) -> str:
    """Generate a new secret, which signs from now on."""
    hook.secret = new_secret()
    return hook.secret


def switch_on(hook: Receiver) -> None:
    """Enable a disabled webhook."""
    hook.disabled_at = hook.disabled_because = hook.failing_since = None


def delete_webhook(session: Session, caller: Caller, hook: Receiver) -> None:
    """Delete a webhook with its messages; a try under way is finished."""
    session.execute(delete(Message).where(Message.receiver_id == hook.id))
    session.delete(hook)
    _record(session, caller, "webhook.delete", hook)


def ping(session: Session, hook: Receiver) -> Message:
    """Send a test message. Raises ConflictError while one is queued, or if it is disabled."""
    _require_on(hook)
    waiting = (Message.state == "waiting", Message.kind == TEST)
    if session.scalar(select(Message.id).where(Message.receiver_id == hook.id, *waiting)):
        raise ConflictError("A test of this webhook is already queued; wait for it.")
    content = {"webhook": {"id": hook.id}, "links": {"api": f"{API}/webhooks/{hook.id}"}}
    return queue(session, TEST, content, [hook])[0]


def resend(session: Session, hook: Receiver, message: Message) -> Message:
    """Retry an ended message from the start, with the same id, whatever its outcome."""
    _require_on(hook)
    if message.state == "waiting":
        raise ConflictError(
            f"Delivery {message.id} is on its way; its next try is at "
            f"{message.due_at:%Y-%m-%d %H:%M:%S} UTC."
        )
    message.state, message.ended_at = "waiting", None
    message.failures, message.due_at = 0, utc_now()
    wake_after_commit(session, NoticeWakeup)
    return message


def _require_on(hook: Receiver) -> None:
    if hook.disabled_at is not None:
        raise ConflictError(
            f"Webhook {hook.id} is disabled ({hook.disabled_because}); enable it first."
        )


def subscribe(session: Session, services: Services, caller: Caller, wanted: MailCreate) -> Receiver:
    """Create a mail subscription. Unless confirmed before, its address gets a mail to confirm it.

    Raises ConflictError if this server sends no mail, or for too many addresses or mails.
    """
    if services.settings.smtp_url is None:
        raise ConflictError("This server sends no mail; use a webhook for the same events.")
    if len(list_mails(session, caller)) >= MOST_ADDRESSES:
        raise ConflictError(f"You have {MOST_ADDRESSES} mail subscriptions; end one first.")
    same = (Receiver.user_id == caller.user_id, Receiver.address == wanted.address)
    was_confirmed = select(Receiver.id).where(*same, Receiver.channel == "mail", is_active())
    own = {
        "channel": "mail",
        "address": wanted.address,
        "mailbox": mailbox_of(wanted.address),
        "secret": secrets.token_hex(32),
        "confirmed_at": utc_now() if session.scalar(was_confirmed.limit(1)) else None,
    }
    made = _make(session, services, caller, wanted, **own)
    if made.confirmed_at is None:
        _require_few_confirmations(session, made)
        queue(session, CONFIRM, {}, [made])
    return made


def mailbox_of(address: str) -> str:
    """The mailbox of an address: in small letters, without a tag behind a plus sign."""
    local, _, domain = address.lower().rpartition("@")
    return f"{local.partition('+')[0]}@{domain}"


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


def confirm(receiver: Receiver) -> None:
    """Confirm a mail address, which starts its mails. Confirming twice changes nothing."""
    receiver.confirmed_at = receiver.confirmed_at or utc_now()
