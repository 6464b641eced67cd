"""Attempts at verifications, the events they posted, and the pause of everything."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.base.models.base import Base
from server.base.models.verifications import Verification


class Attempt(Base):
    """One try at a verification on one worker. `fence` counts its claims.

    `accelerators` are those of the worker when it claimed. `clock_slack_seconds` is how far from
    the server's clock its report could be; None before one was right.
    `run_started_at` is when the run under way was announced, `last_evaluation` the latest event of
    one, `log_tail` the end of a failed run's output, or the last output heard of a lost attempt.

    It waits for `hardware_class`, None for any; for its place there see
    `server.verifications.choose`.
    `sent_to` is the worker that was drawn for it, which alone may lease it; None before that. An
    attempt that `is_apart` goes to workers of certain owners, before all others.
    """

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("verification_id", "number"),
        Index(None, "state", "lease_expires_at"),
        Index(None, "state", "asked_at"),
        Index(None, "sent_to", "send_after"),
    )

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"))
    number: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))
    fence: Mapped[int]
    token_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    worker: Mapped[str | None] = mapped_column(String(200))
    claimed_by: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    send_after: Mapped[datetime]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    failure: Mapped[dict[str, Any] | None]
    run_started_at: Mapped[datetime | None]
    last_evaluation: Mapped[dict[str, Any] | None]
    log_tail: Mapped[str | None] = mapped_column(Text)
    accelerators: Mapped[int | None]
    clock_slack_seconds: Mapped[float | None]
    hardware_class: Mapped[str | None] = mapped_column(String(200))
    submitter_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    by_organiser: Mapped[bool]
    asked_at: Mapped[datetime]
    sent_to: Mapped[str | None] = mapped_column(String(200))
    is_apart: Mapped[bool] = mapped_column(default=False)

    verification: Mapped[Verification] = relationship(back_populates="attempts", lazy="joined")


class ReplayEventRow(Base):
    """Events that a worker posted, in order: the source of live pages and of a partial log."""

    __tablename__ = "replay_events"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True)
    event: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class PauseRow(Base):
    """The pause of everything: by a user, named, for a reason. While it is there nothing starts."""

    __tablename__ = "pauses"

    what: Mapped[str] = mapped_column(String(10), primary_key=True)
    paused_at: Mapped[datetime]
    paused_by: Mapped[str] = mapped_column(String(100))
    paused_because: Mapped[str] = mapped_column(Text)
