"""Users with their quotas, organisations and tokens; the audit log of their actions."""

import secrets
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.base.models.base import Base


class Organisation(Base):
    """Where users belong: members see each other's submissions under embargo, and no more."""

    __tablename__ = "organisations"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    created_at: Mapped[datetime]


def draw_session_number() -> int:
    """A number that no cookie has: one counted up would be known again after a restore."""
    return secrets.randbelow(2**31)


class User(Base):
    """Somebody who submits, organises or lends a worker.

    `role` is the highest their tokens may have (server.people.accounts). The tokens and sessions of
    a user with a `disabled_at` are refused. Packages of one who is known to an organiser, since
    `known_at`, go to workers without a memory cgroup too. Readers see the `display_name` in
    place of the name, where there is one. `quota` has the limits that an organiser set in place of
    the settings' ones, by measure; None in it is no limit. `issuer` and `subject` name the user at
    an OpenID provider. A browser's cookie repeats the `session_number`: another one ends them all.
    """

    __tablename__ = "users"
    __table_args__ = (UniqueConstraint("issuer", "subject"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    created_at: Mapped[datetime]
    role: Mapped[str] = mapped_column(String(20), default="submitter")
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"), index=True)
    email: Mapped[str | None] = mapped_column(String(254))
    disabled_at: Mapped[datetime | None]
    known_at: Mapped[datetime | None]
    display_name: Mapped[str | None] = mapped_column(String(100))
    quota: Mapped[dict[str, int | None] | None] = mapped_column(JSON(none_as_null=True))
    issuer: Mapped[str | None] = mapped_column(String(255))
    subject: Mapped[str | None] = mapped_column(String(255))
    session_number: Mapped[int] = mapped_column(default=draw_session_number)

    organisation: Mapped[Organisation | None] = relationship()

    def end_sessions(self) -> None:
        """Sign every browser out."""
        self.session_number = draw_session_number()


class Token(Base):
    """An API token; only its SHA-256 is kept.

    `last_used_at` is right to about a minute. This token ends with the one that the request which
    made it was sent with, `made_with`.
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
    last_used_at: Mapped[datetime | None]
    made_with: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))

    user: Mapped[User] = relationship(lazy="joined")


class Invitation(Base):
    """A link by which people join; only the SHA-256 of its code is kept.

    It makes `uses_allowed` users of `role`, with an address at `mail_domain` and in the
    organisation where these are set. `name` is proposed to a single person. Users of a `known` link
    are known to an organiser. It ends with the token it was `made_with`.
    """

    __tablename__ = "invitations"

    id: Mapped[int] = mapped_column(primary_key=True)
    code_sha256: Mapped[str] = mapped_column(String(64))
    role: Mapped[str] = mapped_column(String(20))
    uses: Mapped[int] = mapped_column(default=0)
    uses_allowed: Mapped[int]
    expires_at: Mapped[datetime]
    mail_domain: Mapped[str | None] = mapped_column(String(253))
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"))
    name: Mapped[str | None] = mapped_column(String(100))
    known: Mapped[bool] = mapped_column(default=False)
    made_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    made_with: Mapped[int] = mapped_column(ForeignKey("tokens.id"))
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]

    maker: Mapped[User] = relationship(lazy="joined")
    organisation: Mapped[Organisation | None] = relationship(lazy="joined")


class AuditRecord(Base):
    """Record of a change, its user and reason; a trigger refuses to change or delete it.

    Each hash covers the one before. `actor` keeps the name; `actor_id` is None for the server's
    own administration.
    """

    __tablename__ = "audit_log"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    actor_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    actor: Mapped[str] = mapped_column(String(100))
    action: Mapped[str] = mapped_column(String(50))
    subject_kind: Mapped[str] = mapped_column(String(50))
    subject_id: Mapped[str] = mapped_column(String(200))
    reason: Mapped[str | None] = mapped_column(Text)
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]
    previous_sha256: Mapped[str] = mapped_column(String(64))
    sha256: Mapped[str] = mapped_column(String(64))
