"""Public keys as they cross the API."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from server.models import SigningKey


class KeyView(BaseModel):
    """A public key in hex; `id` is the first 16 hex digits of its SHA-256."""

    id: str
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str
    created_at: datetime
    current: bool


class KeyList(BaseModel):
    """Every key this server has signed with, newest first."""

    keys: list[KeyView]


def key_view(key: SigningKey, *, current: str) -> KeyView:
    """A stored key."""
    return KeyView(
        id=key.id,
        public_key=key.public_key,
        created_at=key.created_at,
        current=key.id == current,
    )
