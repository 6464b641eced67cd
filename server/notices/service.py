"""Making, testing, switching and deleting webhooks."""

import secrets
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from server.accounts.roles import ORGANISERS
from server.audit.service import Subject as AuditSubject
from server.audit.service import record
from server.benchmarks.queries import find_benchmark
from server.database import after_commit, utc_now
from server.dependencies import Caller, Parts
from server.errors import ConflictError, NotAllowedError
from server.models import Delivery, NoticeEvent, Webhook
from server.notices.addresses import check_url
from server.notices.announce import Subject, new_event
from server.notices.kinds import TEST
from server.notices.listeners import ALL
from server.notices.pruning import forget_events
from server.notices.queries import list_webhooks
from server.notices.schemas import Wanted, WebhookCreate
from server.notices.signature import new_secret
from server.notices.spread import waiting_row
from server.notices.waking import waking_of

MOST_WEBHOOKS = 20
BOTH_VALID = timedelta(days=1)


def new_id() -> str:
    """A short random id for a URL: 60 bits."""
    return secrets.token_hex(8)[:15]


def require_wanted(parts: Parts, caller: Caller, wanted: Wanted) -> None:
    """Raise unless the caller may be told of what is wanted, and there is such a benchmark.

    Notices hold what the caller reads, under embargo too, and go on when the token has ended.
    """
    if not caller.may("read"):
        raise NotAllowedError("To be told of events takes a token with the scope read.")
    if wanted.scope == ALL and not (caller.role in ORGANISERS and caller.may("organise")):
        raise NotAllowedError(
            "Only an organiser, with a token of scope organise, may be told of everything; name a "
            "benchmark."
        )
    if wanted.benchmark is not None:
        find_benchmark(parts.benchmarks, wanted.benchmark)


def make_webhook(session: Session, parts: Parts, caller: Caller, wanted: WebhookCreate) -> Webhook:
    """A webhook of the caller's, with a secret that its answer shows once.

    Raises ContentError for an address it may not have, NotAllowedError, ConflictError for too many.
    """
    require_wanted(parts, caller, wanted)
    check_url(wanted.url, private_allowed=parts.settings.webhook_private_addresses)
    if len(list_webhooks(session, caller)) >= MOST_WEBHOOKS:
        raise ConflictError(f"You have {MOST_WEBHOOKS} webhooks; delete one first.")
    hook = Webhook(
        id=new_id(),
        user_id=caller.user_id,
        url=wanted.url,
        kinds=sorted(set(wanted.kinds)),
        scope=wanted.scope,
        benchmark_id=wanted.benchmark,
        secret=new_secret(),
        created_at=utc_now(),
    )
    session.add(hook)
    _record(session, caller, "webhook.create", hook)
    return hook


def _record(session: Session, caller: Caller, action: str, hook: Webhook) -> None:
    """Write down who is told of everything; what others watch is their own affair."""
    if hook.scope != ALL:
        return
    told: dict[str, Any] = {"url": hook.url, "kinds": hook.kinds, "scope": hook.scope}
    is_new = action == "webhook.create"
    record(
        session,
        caller,
        action,
        AuditSubject("webhook", hook.id),
        reason=None,
        before=None if is_new else told,
        after=told if is_new else None,
    )


def replace_secret(hook: Webhook) -> str:
    """A fresh secret; for a day the earlier one signs as well."""
    hook.previous_secret, hook.previous_until = hook.secret, utc_now() + BOTH_VALID
    hook.secret = new_secret()
    return hook.secret


def switch_on(hook: Webhook) -> None:
    """Post to a webhook again."""
    hook.disabled_at = hook.disabled_because = hook.failing_since = None


def delete_webhook(session: Session, caller: Caller, hook: Webhook) -> None:
    """Delete a webhook with its deliveries; a try under way comes to its end."""
    session.refresh(hook, with_for_update=True)
    of_hook = Delivery.webhook_id == hook.id
    events = session.scalars(select(Delivery.event_id).where(of_hook)).all()
    session.execute(delete(Delivery).where(of_hook))
    forget_events(session, events)
    session.delete(hook)
    _record(session, caller, "webhook.delete", hook)


def ping(session: Session, hook: Webhook) -> Delivery:
    """Send a test message. Raises ConflictError while one is on its way, or it is switched off."""
    _require_on(hook)
    on_its_way = (
        select(Delivery.id)
        .join(NoticeEvent, NoticeEvent.id == Delivery.event_id)
        .where(
            Delivery.webhook_id == hook.id,
            Delivery.state == "waiting",
            NoticeEvent.kind == TEST,
        )
    )
    if session.scalar(on_its_way) is not None:
        raise ConflictError("A test of this webhook is on its way; wait for it.")
    content = {"webhook": {"id": hook.id}, "links": {"api": f"/api/v1/webhooks/{hook.id}"}}
    return send_now(session, new_event(TEST, Subject(hook.user_id, None, content)), hook=hook)


def send_now(session: Session, row: dict[str, Any], *, hook: Webhook) -> Delivery:
    """A delivery of an event that is one webhook's alone."""
    now = utc_now()
    session.flush()
    session.execute(insert(NoticeEvent), [row | {"spread_at": now}])
    delivery = Delivery(**waiting_row(row["id"], now), webhook=hook)
    session.add(delivery)
    session.flush()
    after_commit(session, waking_of(session).set)
    return delivery


def resend(session: Session, hook: Webhook, delivery: Delivery) -> Delivery:
    """Try a delivery that ended again from the start, with the same id, whatever came of it.

    Raises ConflictError for one that is on its way, or if the webhook is switched off.
    """
    _require_on(hook)
    if delivery.state == "waiting":
        raise ConflictError(
            f"Delivery {delivery.id} is on its way; its next try is at "
            f"{delivery.due_at:%Y-%m-%d %H:%M:%S} UTC."
        )
    delivery.state, delivery.ended_at = "waiting", None
    delivery.failures, delivery.due_at = 0, utc_now()
    after_commit(session, waking_of(session).set)
    return delivery


def _require_on(hook: Webhook) -> None:
    if hook.disabled_at is not None:
        raise ConflictError(
            f"Webhook {hook.id} is switched off ({hook.disabled_because}); switch it on first."
        )
