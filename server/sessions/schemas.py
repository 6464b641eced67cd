"""What a console session holds, between the modules of the server."""

from dataclasses import dataclass, field
from datetime import datetime

from server.dependencies import Caller


@dataclass(frozen=True)
class Notice:
    """What a form changed, told by the next page; `once_only` is a token that was just made."""

    text: str
    once_only: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class SignedIn:
    """Whose browser this is. `secret` is what its cookie holds and is never logged or shown."""

    secret: str = field(repr=False)
    caller: Caller
    ends_at: datetime
    token_expires_at: datetime | None
    has_notices: bool
