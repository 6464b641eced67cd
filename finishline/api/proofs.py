"""The public keys that proofs are signed with."""

from datetime import datetime
from typing import Literal

from finishline.api.schema import Schema


class KeyView(Schema):
    """A public key in hex; `id` is the first 16 hex digits of its SHA-256."""

    id: str
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str
    created_at: datetime
    current: bool


class KeyList(Schema):
    """Every key this server has signed with, newest first."""

    keys: list[KeyView]
