"""Who submits, organises or lends a worker, and what shows that it is them."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.models.base import Base


class Organisation(Base):
    """Where users belong: members see each other's submissions under embargo, and no more."""

    __tablename__ = "organisations"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    created_at: Mapped[datetime]


class User(Base):
    """Somebody who submits, organises or lends a worker.

    `role` is the highest their tokens may have (server.people.accounts). The tokens and sessions of
    a user with a `disabled_at` are refused.
    """

    __tablename__ = "users"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    created_at: Mapped[datetime]
    role: Mapped[str] = mapped_column(String(20), default="submitter", server_default="submitter")
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"), index=True)
    email: Mapped[str | None] = mapped_column(String(254))
    disabled_at: Mapped[datetime | None]

    organisation: Mapped[Organisation | None] = relationship()


class Token(Base):
    """An API token; only its SHA-256 is kept. `role` and `scopes` are of server.people.accounts.

    `last_used_at` is right to about a minute. `rotated_from` is the token this one took over from,
    `made_with` the one that the request which made it was sent with: this one ends with either.
    A witness's token serves the verification of `submission_id` alone.
    """

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    role: Mapped[str] = mapped_column(String(20))
    token_sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    label: Mapped[str | None] = mapped_column(String(100))
    scopes: Mapped[list[Any]] = mapped_column(server_default="[]")
    last_used_at: Mapped[datetime | None]
    rotated_from: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    made_with: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))

    user: Mapped[User] = relationship(lazy="joined")


class ConsoleSession(Base):
    """A browser that is signed in with a token; only the SHA-256 of its random id is kept.

    `notices` are what the next page tells once: what the last form changed.
    """

    __tablename__ = "console_sessions"

    id_sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    token_id: Mapped[int] = mapped_column(ForeignKey("tokens.id"), index=True)
    created_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]
    notices: Mapped[list[Any]]

    token: Mapped[Token] = relationship(lazy="joined")
