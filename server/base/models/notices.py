"""Notices: events, the subscriptions to them, and their deliveries."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.base.models.base import Base


class NoticeEvent(Base):
    """An event to notify of, written in the transaction of its change.

    `user_id` is the owner of the submission or worker it is about. Once it is handed on
    (`spread_at`) it stays as long as its deliveries.
    """

    __tablename__ = "notice_events"
    __table_args__ = (Index(None, "spread_at", "created_at"),)

    id: Mapped[str] = mapped_column(String(24), primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    benchmark_id: Mapped[str | None] = mapped_column(String(100))
    content: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    spread_at: Mapped[datetime | None]


class Webhook(Base):
    """An address of somebody's that events are posted to. `scope` is own, benchmark or all.

    `secret` signs, and so does `previous_secret` until `previous_until`. `failing_since` is the
    first failure after the last success.
    """

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    url: Mapped[str] = mapped_column(Text)
    kinds: Mapped[list[Any]]
    scope: Mapped[str] = mapped_column(String(20))
    benchmark_id: Mapped[str | None] = mapped_column(String(100))
    secret: Mapped[str] = mapped_column(String(100))
    previous_secret: Mapped[str | None] = mapped_column(String(100))
    previous_until: Mapped[datetime | None]
    created_at: Mapped[datetime]
    failing_since: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    disabled_because: Mapped[str | None] = mapped_column(Text)


class MailSubscription(Base):
    """An e-mail address that events are sent to, from `verified_at` to `ended_at`.

    Its links are signed by its `secret`. Addresses that differ in their tag have one `mailbox`.
    """

    __tablename__ = "mail_subscriptions"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    address: Mapped[str] = mapped_column(String(254), index=True)
    mailbox: Mapped[str] = mapped_column(String(254), index=True)
    kinds: Mapped[list[Any]]
    scope: Mapped[str] = mapped_column(String(20))
    benchmark_id: Mapped[str | None] = mapped_column(String(100))
    secret: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime]
    verified_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class Delivery(Base):
    """An event on its way to one webhook or one address; waiting, delivered or failed.

    A try is claimed by raising `claims`, which also puts `due_at` off: one that dies is made again.
    `failures` counts those of the present series, `tries` keeps the outcome of each.
    """

    __tablename__ = "deliveries"
    __table_args__ = (
        UniqueConstraint("event_id", "webhook_id"),
        UniqueConstraint("event_id", "mail_id"),
        Index(None, "state", "due_at"),
        Index(None, "created_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    event_id: Mapped[str] = mapped_column(ForeignKey("notice_events.id"))
    webhook_id: Mapped[str | None] = mapped_column(ForeignKey("webhooks.id"), index=True)
    mail_id: Mapped[str | None] = mapped_column(ForeignKey("mail_subscriptions.id"), index=True)
    state: Mapped[str] = mapped_column(String(20))
    due_at: Mapped[datetime]
    claims: Mapped[int]
    failures: Mapped[int]
    tries: Mapped[list[Any]]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]

    event: Mapped[NoticeEvent] = relationship(lazy="joined")
    webhook: Mapped[Webhook | None] = relationship()
    mail: Mapped[MailSubscription | None] = relationship()
