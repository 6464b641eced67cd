"""Signing what is posted, as the Standard Webhooks specification 1.0.0 has it."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    """A random secret as its receiver is shown it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature_headers(
    keys: Iterable[str], message_id: str, *, seconds: int, body: bytes
) -> dict[str, str]:
    """The three headers of a message: its id, the second of this try, a signature for each key."""
    signed = [_sign(key, message_id, seconds=seconds, body=body) for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signed),
    }


def _sign(key: str, message_id: str, *, seconds: int, body: bytes) -> str:
    raw = base64.b64decode(key.removeprefix(PREFIX))
    content = f"{message_id}.{seconds}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(raw, content, hashlib.sha256)).decode()
