"""The server's Ed25519 key, read again for each signature: replacing the file rotates it."""

import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from finishline.rules.proof.proof import key_id_of
from server.base.errors import ServerError


@dataclass(frozen=True)
class Signer:
    """A private key, its id, and its public half in hex."""

    key: Ed25519PrivateKey
    key_id: str
    public_key: str

    def sign(self, content: bytes) -> bytes:
        """Sign some bytes. The same bytes always have the same signature."""
        return self.key.sign(content)

    def derive(self, purpose: str) -> str:
        """Derive a secret that only the key's holder can make. It reveals nothing of the key."""
        return hmac.digest(self.key.private_bytes_raw(), purpose.encode(), "sha256").hex()


def load_signer(path: Path) -> Signer:
    """Load the signer of a key file, made with mode 0600 if missing. Raises ServerError."""
    if not path.exists():
        _make_key(path)
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _unusable(path, str(error)) from error
    except InternalError as error:  # For example an X448 key that is too short.
        raise _unusable(path, "a broken key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable(path, "another kind of key")
    raw = key.public_key().public_bytes_raw()
    return Signer(key=key, key_id=key_id_of(raw), public_key=raw.hex())


def _make_key(path: Path) -> None:
    """Write a key to a fresh file and link it to its place: of two servers, one wins."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(pem)
                file.flush()
                os.fsync(file.fileno())
            os.link(fresh, path)
        except FileExistsError:
            pass  # The other server's key counts for both.
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error


def _unusable(path: Path, reason: str) -> ServerError:
    return ServerError(
        f"The signing key {path} cannot be used ({reason}): expected an Ed25519 private key in "
        "PEM; name another file with FINISHLINE_SIGNING_KEY."
    )
