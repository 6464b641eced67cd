"""Links in mails: whoever has one may confirm or end one subscription, and nothing else."""

import hashlib
import hmac
from typing import Literal

from sqlalchemy.orm import Session

from server.errors import NotFoundError
from server.models import MailSubscription

Purpose = Literal["confirm", "unsubscribe"]


def link_token(subscription: MailSubscription, purpose: Purpose) -> str:
    """What a link carries: the subscription, and a signature that only its secret can make."""
    return f"{subscription.id}.{_signature(subscription, purpose)}"


def find_by_link(session: Session, token: str, purpose: Purpose) -> MailSubscription:
    """The subscription a link is about. Raises NotFoundError, also for a signature that is none."""
    subscription_id, _, signature = token.partition(".")
    found = session.get(MailSubscription, subscription_id)
    if (found is None or found.ended_at is not None) or not hmac.compare_digest(
        _signature(found, purpose).encode(), signature.encode()
    ):
        raise NotFoundError("This link is not valid any more, or was not copied whole.")
    return found


def _signature(subscription: MailSubscription, purpose: Purpose) -> str:
    # The address is part of it: a link confirms the one it was sent to.
    content = f"{purpose}.{subscription.id}.{subscription.address}".encode()
    return hmac.new(subscription.secret.encode(), content, hashlib.sha256).hexdigest()[:40]
