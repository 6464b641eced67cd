"""Tokens as they cross the API."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from server.models import Token


class TokenCreate(BaseModel):
    """Who gets a token, for what, and for how long."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"user": "alice", "role": "submitter", "expires_in_days": 90}]
        },
    )

    user: str = Field(min_length=1, max_length=100, pattern=r"^[\w.@ -]+$")
    role: Literal["submitter", "organiser", "worker"]
    expires_in_days: float | None = Field(default=None, gt=0, le=3650)


class TokenView(BaseModel):
    """A token without its secret."""

    id: int
    user: str
    role: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class TokenCreated(TokenView):
    """A token just made: the only time its secret is shown."""

    token: str


class TokenList(BaseModel):
    """Every token, newest first."""

    tokens: list[TokenView]


class MeView(BaseModel):
    """Who the token of this request belongs to."""

    user: str
    role: str


def token_view(token: Token) -> TokenView:
    """A stored token as the API shows it."""
    return TokenView(
        id=token.id,
        user=token.user.name,
        role=token.role,
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )
