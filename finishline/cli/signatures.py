"""Signatures of proof bundles: is this document as it was signed, and by whom?"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from finishline.cli.errors import CliError, ExitCode
from finishline.rules.errors import RuleError
from finishline.rules.proof.check import Check
from finishline.rules.proof.proof import key_id_of, signed_bytes

KEY_BYTES = 32
KEY_FILE_LIMIT_BYTES = 1024 * 1024
NO_KEY = (
    "no key to hold it against, and anybody can sign with a key of their own: name the server's "
    "public key with --key"
)


def read_keys(path: Path) -> list[bytes]:
    """The public keys in a file: one in hex, or what /api/v1/keys answers. Raises CliError."""
    try:
        with path.open("rb") as file:
            text = file.read(KEY_FILE_LIMIT_BYTES).decode()
        return keys_in(json.loads(text)) if text.lstrip().startswith("{") else [_key(text.strip())]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CliError(
            f"No public key in {path} ({error}): expected 64 hex digits, or the JSON of "
            "GET /api/v1/keys.",
            exit_code=ExitCode.USAGE,
        ) from error


def keys_in(view: Mapping[str, Any]) -> list[bytes]:
    """The public keys a server lists. Raises ValueError, KeyError or TypeError."""
    return [_key(item["public_key"]) for item in view["keys"]]


def _key(text: str) -> bytes:
    key = bytes.fromhex(text)
    if len(key) != KEY_BYTES:
        raise ValueError(f"{len(key)} bytes")
    return key


def check_signature(document: Mapping[str, Any], keys: Sequence[bytes]) -> list[Check]:
    """Two checks: that the document is as it was signed, and that one of `keys` signed it."""
    signature = document.get("signature")
    table = signature if isinstance(signature, Mapping) else {}
    return [_intact(document, table), _signer(table, keys)]


def _intact(document: Mapping[str, Any], signature: Mapping[str, Any]) -> Check:
    compared = "Ed25519 signature over everything but itself"
    try:
        public = _key(signature["public_key"])
        if signature.get("key_id") != key_id_of(public):
            return Check("signature", "fail", compared, "the key id is not that of the key")
        value = bytes.fromhex(signature["value"])
        Ed25519PublicKey.from_public_bytes(public).verify(value, signed_bytes(document))
    except InvalidSignature:
        return Check("signature", "fail", compared, "the document was changed after it was signed")
    except (KeyError, ValueError, TypeError, RuleError) as error:
        return Check("signature", "fail", compared, f"no signature that can be read: {error!r}")
    return Check("signature", "pass", compared)


def _signer(signature: Mapping[str, Any], keys: Sequence[bytes]) -> Check:
    signed_by = str(signature.get("key_id"))[:40]
    compared = f"key {signed_by} against {len(keys)} trusted"
    if not keys:
        return Check("signer", "fail", compared, NO_KEY)
    if signature.get("public_key") not in {key.hex() for key in keys}:
        return Check("signer", "fail", compared, "none of the trusted keys has signed this")
    return Check("signer", "pass", compared)
