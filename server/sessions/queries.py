"""Reading console sessions."""

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from server.accounts.service import hash_token, holder_of, require_valid
from server.database import utc_now
from server.errors import NotSignedInError
from server.models import ConsoleSession

IDLE = timedelta(hours=12)
LONGEST = timedelta(days=7)


def find_session(session: Session, secret: str) -> ConsoleSession:
    """The session of a browser. Raises NotSignedInError saying why there is none any more."""
    found = session.get(ConsoleSession, hash_token(secret))
    if found is None:
        raise NotSignedInError("You are not signed in, or signed out elsewhere.")
    require_valid(holder_of(found.token))
    if ends_at(found) <= utc_now():
        raise NotSignedInError("This session has ended; sign in again.")
    return found


def ends_at(found: ConsoleSession) -> datetime:
    """When a session ends if nothing more is heard of it."""
    return min(found.last_seen_at + IDLE, found.created_at + LONGEST)
