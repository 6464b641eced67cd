"""Find the subscribers of an event."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.base.models import MailSubscription, NoticeEvent, Token, User, Webhook
from server.people.accounts import ORGANISERS

Channel = Literal["webhook", "mail"]
AUDIT_HEAD = "audit.head"
OWN, BENCHMARK, ALL = "own", "benchmark", "all"


@dataclass(frozen=True)
class Listener:
    """A webhook or an address, and its filter of events. `address` limits the mails of a day."""

    channel: Channel
    id: str
    user_id: int
    kinds: frozenset[str]
    scope: str
    benchmark_id: str | None
    address: str | None = None

    def wants(self, event: NoticeEvent, organisers: frozenset[int]) -> bool:
        """Whether this event passes its filter. `organisers` are the current organisers."""
        if event.kind not in self.kinds:
            return False
        if event.kind == AUDIT_HEAD:  # Everybody may read it.
            return True
        own = event.user_id == self.user_id
        if self.scope == OWN:
            return own
        if self.scope == BENCHMARK:
            return event.benchmark_id == self.benchmark_id
        return self.user_id in organisers


def find_listeners(session: Session) -> list[Listener]:
    """Every webhook that is on, and every confirmed address, of users who are not disabled."""
    gone = select(User.id).where(User.disabled_at.is_not(None))
    hooks = session.scalars(
        select(Webhook).where(Webhook.disabled_at.is_(None), Webhook.user_id.not_in(gone))
    )
    addresses = session.scalars(
        select(MailSubscription).where(is_confirmed(), MailSubscription.user_id.not_in(gone))
    )
    return [
        *(_listener("webhook", hook) for hook in hooks),
        *(_listener("mail", item, item.address) for item in addresses),
    ]


def is_confirmed() -> ColumnElement[bool]:
    """SQL condition: confirmed addresses whose subscription has not ended."""
    return MailSubscription.verified_at.is_not(None) & MailSubscription.ended_at.is_(None)


def _listener(
    channel: Channel, row: Webhook | MailSubscription, address: str | None = None
) -> Listener:
    return Listener(
        channel, row.id, row.user_id, frozenset(row.kinds), row.scope, row.benchmark_id, address
    )


def find_organisers(session: Session, listeners: Iterable[Listener]) -> frozenset[int]:
    """Users who subscribe to everything and have a valid token of an organiser."""
    wanting = {listener.user_id for listener in listeners if listener.scope == ALL}
    if not wanting:
        return frozenset()
    valid = Token.expires_at.is_(None) | (Token.expires_at > utc_now())
    return frozenset(
        session.scalars(
            select(Token.user_id)
            .join(User, User.id == Token.user_id)
            .where(
                Token.user_id.in_(wanting),
                Token.role.in_(ORGANISERS),
                User.role.in_(ORGANISERS),
                Token.revoked_at.is_(None),
                valid,
            )
        )
    )
