"""Notices: who gets which events, and the messages on their way to them."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.base.models.base import Base


class Receiver(Base):
    """A webhook or a mail address of a user, and the events that it gets.

    `channel` is webhook or mail, `scope` is own, benchmark or all. It gets events from
    `confirmed_at` to `disabled_at`. `secret` signs posts, and the links of mails. `failing_since`
    is the first failure after the last success. Mail addresses that differ in their tag have one
    `mailbox`.
    """

    __tablename__ = "receivers"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    channel: Mapped[str] = mapped_column(String(10))
    address: Mapped[str] = mapped_column(Text)
    mailbox: Mapped[str | None] = mapped_column(String(254), index=True)
    kinds: Mapped[list[Any]]
    scope: Mapped[str] = mapped_column(String(20))
    benchmark_id: Mapped[str | None] = mapped_column(String(100))
    secret: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime]
    confirmed_at: Mapped[datetime | None]
    failing_since: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    disabled_because: Mapped[str | None] = mapped_column(Text)


class Message(Base):
    """An event for one receiver: waiting, delivered or failed. The table is the outbox.

    It is written in the transaction of the event. A try begins by putting `due_at` off, so that a
    message whose process dies is sent again. `failures` counts those of the present series,
    `tries` has the outcome of each. A message without a receiver is for the server itself.
    """

    __tablename__ = "outbox"
    __table_args__ = (Index(None, "state", "due_at"), Index(None, "created_at"))

    id: Mapped[int] = mapped_column(primary_key=True)
    message_id: Mapped[str] = mapped_column(String(24))
    receiver_id: Mapped[str | None] = mapped_column(ForeignKey("receivers.id"), index=True)
    kind: Mapped[str] = mapped_column(String(40))
    content: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(20))
    due_at: Mapped[datetime]
    failures: Mapped[int]
    tries: Mapped[list[Any]]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]

    receiver: Mapped[Receiver | None] = relationship()
