"""Deliveries: claimed by one server at a time, retried for about a day, then given up.

A claim is one UPDATE that only one server wins, and it delays the next try: if the process dies,
the same message is sent again with the same id.
"""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, case, func, select, true, update
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.base.models import Delivery, Webhook
from server.notices.webhooks import Answer, switch_off

# Longer than a try may take: a delivery that is not settled by then is retried.
CLAIM = timedelta(seconds=60)
RETRY_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)
JITTER = 0.1
LONGEST_WAIT = timedelta(days=1)
SPARED_SECONDS = 300.0
# A receiver that has failed for so long when a message is given up is left alone.
FAILING = timedelta(days=1)
TRIES_KEPT = 20
GONE = 410


@dataclass(frozen=True)
class Claimed:
    """Delivery for this process to try; each `lane` (a user, or mail) has few slots."""

    id: int
    claims: int
    webhook_id: str | None
    mail_id: str | None
    lane: str

    @property
    def receiver(self) -> str:
        """Webhook or address, which gets one try at a time."""
        return self.webhook_id or self.mail_id or ""


def due(now: datetime, *, with_mail: bool) -> ColumnElement[bool]:
    """SQL condition: deliveries that can be tried."""
    mine = true() if with_mail else Delivery.mail_id.is_(None)
    return (Delivery.state == "waiting") & (Delivery.due_at <= now) & mine


def first_due(session: Session, *, with_mail: bool, limit: int) -> list[Claimed]:
    """Next message of each receiver that has one due, the longest overdue first."""
    place = (
        func.row_number()
        .over(
            partition_by=(Delivery.webhook_id, Delivery.mail_id),
            order_by=(Delivery.due_at, Delivery.id),
        )
        .label("place")
    )
    found = (
        select(
            Delivery.id,
            Delivery.claims,
            Delivery.webhook_id,
            Delivery.mail_id,
            Delivery.due_at,
            place,
        )
        .where(due(utc_now(), with_mail=with_mail))
        .subquery()
    )
    rows = session.execute(
        select(found, Webhook.user_id)
        .outerjoin(Webhook, Webhook.id == found.c.webhook_id)
        .where(found.c.place == 1)
        .order_by(found.c.due_at, found.c.id)
        .limit(limit)
    )
    return [
        Claimed(row.id, row.claims, row.webhook_id, row.mail_id, _lane(row.user_id)) for row in rows
    ]


def _lane(user_id: int | None) -> str:
    return "mail" if user_id is None else f"user {user_id}"


def claim(session: Session, wanted: Claimed) -> bool:
    """Claim a delivery for this process; False if another has it or it has ended."""
    won = session.execute(
        update(Delivery)
        .where(
            Delivery.id == wanted.id,
            Delivery.state == "waiting",
            Delivery.claims == wanted.claims,
        )
        .values(claims=Delivery.claims + 1, due_at=utc_now() + CLAIM)
        .returning(Delivery.id)
        .execution_options(synchronize_session=False)
    ).first()
    return won is not None


def settle(session: Session, delivery_id: int, answer: Answer, *, claims: int) -> None:
    """Store the outcome of a try. A failure counts only if no process has claimed it since."""
    delivery = session.get(Delivery, delivery_id)
    if delivery is None or delivery.state != "waiting":
        return
    now = utc_now()
    if answer.is_success:
        delivery.tries = _with_try(delivery, answer, now)
        delivery.state, delivery.ended_at = "delivered", now
        if delivery.webhook is not None:
            delivery.webhook.failing_since = None
    elif delivery.claims == claims:
        delivery.tries = _with_try(delivery, answer, now)
        _put_off(session, delivery, answer, now)


def _with_try(delivery: Delivery, answer: Answer, now: datetime) -> list[Any]:
    made = {
        "at": now.isoformat(),
        "status": answer.status,
        "milliseconds": answer.milliseconds,
        "answer": answer.text,
        "error": answer.error,
    }
    return [*delivery.tries, made][-TRIES_KEPT:]


def _put_off(session: Session, delivery: Delivery, answer: Answer, now: datetime) -> None:
    delivery.failures += 1
    hook = delivery.webhook
    if hook is not None:
        hook.failing_since = hook.failing_since or now
    if hook is not None and answer.status == GONE:
        switch_off(session, hook, "It returned 410 Gone.", now=now)
    elif delivery.failures <= len(RETRY_SECONDS) and not _is_final(delivery, answer):
        pause = retry_seconds(delivery.failures, answer.retry_after_seconds)
        delivery.due_at = now + timedelta(seconds=pause)
        _spare(session, delivery, answer, now)
    else:
        delivery.state, delivery.ended_at = "failed", now
        if hook is not None and hook.failing_since is not None:
            _give_up_on(session, hook, now)


def _spare(session: Session, failed: Delivery, answer: Answer, now: datetime) -> None:
    """Delay the webhook's other deliveries too: while it fails it gets one try at a time."""
    if failed.webhook_id is None:
        return
    pause = min((failed.due_at - now).total_seconds(), SPARED_SECONDS)
    wanted = min(answer.retry_after_seconds or 0.0, LONGEST_WAIT.total_seconds())
    until = now + timedelta(seconds=max(pause, wanted))
    session.execute(
        update(Delivery)
        .where(
            Delivery.webhook_id == failed.webhook_id,
            Delivery.id != failed.id,
            Delivery.state == "waiting",
            Delivery.due_at < until,
        )
        .values(due_at=until)
        .execution_options(synchronize_session=False)
    )


def _is_final(delivery: Delivery, answer: Answer) -> bool:
    """Whether a mail server has rejected this mail permanently (RFC 5321, 5yz)."""
    return delivery.mail_id is not None and answer.status is not None and answer.status >= 500


def _give_up_on(session: Session, hook: Webhook, now: datetime) -> None:
    since = hook.failing_since
    if since is not None and now - since >= FAILING:
        switch_off(
            session, hook, f"Deliveries have failed since {since:%Y-%m-%d %H:%M} UTC.", now=now
        )


def retry_seconds(failures: int, wanted: float | None) -> float:
    """Seconds until the next try: at least the receiver's Retry-After, at most about a day.

    Varied by a tenth either way, so that simultaneous failures are not retried at once.
    """
    planned = RETRY_SECONDS[failures - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
    return max(planned, min(wanted or 0.0, LONGEST_WAIT.total_seconds()))


def next_due(session: Session, *, with_mail: bool) -> datetime | None:
    """Time of the next delivery; None if none waits."""
    mine = true() if with_mail else Delivery.mail_id.is_(None)
    return session.scalar(
        select(func.min(Delivery.due_at)).where(Delivery.state == "waiting", mine)
    )


def count_deliveries(session: Session) -> dict[tuple[str, str], int]:
    """Count the stored deliveries by channel and state."""
    channel = case((Delivery.mail_id.is_(None), "webhook"), else_="mail").label("channel")
    rows = session.execute(
        select(channel, Delivery.state, func.count()).group_by("channel", Delivery.state)
    )
    return {(name, state): count for name, state, count in rows}


def overdue_seconds(session: Session, *, now: datetime) -> float:
    """Seconds since the oldest waiting try was due; 0 if none is late."""
    due_at = next_due(session, with_mail=True)
    return 0.0 if due_at is None else max((now - due_at).total_seconds(), 0.0)
