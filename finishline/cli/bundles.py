"""Proof bundles: read in memory within limits, never unpacked, their signatures checked."""

import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from finishline.cli.errors import CliError, ExitCode, Problem
from finishline.rules.errors import RuleError
from finishline.rules.proof.check import Check
from finishline.rules.proof.hash_chain import read_json
from finishline.rules.proof.proof import PROOF_NAME, key_id_of, signed_bytes
from finishline.rules.text import count_text

MIB = 1024 * 1024
PROOF_LIMIT_BYTES = 32 * MIB
FILE_LIMIT_BYTES = 64 * MIB
BUNDLE_LIMIT_BYTES = 512 * MIB  # of the zip, and of all that is in it
FILES_LIMIT = 110  # proof.json, a claim, and as many run logs as a submission may have
ALLOWED_NAME = re.compile(r"proof\.json|logs/[0-9a-f]{64}")


@dataclass(frozen=True)
class Bundle:
    """A proof's document and its files by hash; None if it came without files."""

    document: dict[str, Any]
    logs: dict[str, bytes] | None


def read_bundle_file(path: Path) -> Bundle:
    """The bundle in a proof.zip or proof.json. Raises CliError."""
    try:
        if path.stat().st_size > BUNDLE_LIMIT_BYTES:
            raise _refusal(path.name, "too large", expected=f"at most {BUNDLE_LIMIT_BYTES} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise CliError(
            f"Cannot read {path} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error
    return read_bundle(content, file=path.name)


def read_bundle(content: bytes, *, file: str) -> Bundle:
    """The bundle in these bytes: a zip, or the JSON alone. Raises CliError."""
    if not content.startswith(b"PK"):
        return Bundle(_document(content, file=file), logs=None)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            files = _read_files(opened, file=file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise _refusal(file, f"not a readable zip ({error})", expected="a proof bundle") from error
    if PROOF_NAME not in files:
        raise _refusal(file, f"contains no {PROOF_NAME}", expected="a proof bundle")
    document = _document(files.pop(PROOF_NAME), file=f"{file}/{PROOF_NAME}")
    return Bundle(document, {name.partition("/")[2]: found for name, found in files.items()})


def _read_files(opened: zipfile.ZipFile, *, file: str) -> dict[str, bytes]:
    entries = opened.infolist()
    if len(entries) > FILES_LIMIT:
        raise _refusal(file, count_text(len(entries), "file"), expected=f"at most {FILES_LIMIT}")
    files: dict[str, bytes] = {}
    left = BUNDLE_LIMIT_BYTES
    for entry in entries:
        place = f"{file}/{entry.filename[:100]}"
        if not ALLOWED_NAME.fullmatch(entry.filename):
            raise _refusal(place, "unexpected file name", expected=f"{PROOF_NAME} or logs/SHA")
        if entry.filename in files:
            raise _refusal(place, "appears twice", expected="each file once")
        if entry.flag_bits & 1:
            raise _refusal(place, "is encrypted", expected="a file that can be read")
        limit = PROOF_LIMIT_BYTES if entry.filename == PROOF_NAME else FILE_LIMIT_BYTES
        with opened.open(entry) as source:
            files[entry.filename] = _read_at_most(source, min(limit, left), place=place)
        left -= len(files[entry.filename])
    return files


def _read_at_most(source: IO[bytes], limit: int, *, place: str) -> bytes:
    """A file's bytes, however many its header says there are."""
    content = source.read(limit + 1)
    if len(content) > limit:
        raise _refusal(place, "too large unpacked", expected=f"at most {limit} bytes")
    return content


def _document(content: bytes, *, file: str) -> dict[str, Any]:
    if len(content) > PROOF_LIMIT_BYTES:
        raise _refusal(file, "too large", expected=f"at most {PROOF_LIMIT_BYTES} bytes")
    try:
        return read_json(content, file=file)
    except RuleError as error:
        raise _refusal(file, error.message, expected="a proof bundle") from error


def _refusal(file: str, message: str, *, expected: str) -> CliError:
    return CliError(
        "This is not a valid proof bundle.",
        exit_code=ExitCode.REFUSED,
        problems=[Problem(message=message, file=file, expected=expected)],
    )


KEY_BYTES = 32
KEY_FILE_LIMIT_BYTES = 1024 * 1024
NO_KEY = (
    "no trusted key given, and anyone can sign with a key of their own; pass the server's public "
    "key with --key"
)


def read_keys(path: Path) -> list[bytes]:
    """The public keys in a file: one in hex, or the JSON of /api/v1/keys. Raises CliError."""
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
    compared = "Ed25519 signature over the rest of the document"
    try:
        public = _key(signature["public_key"])
        if signature.get("key_id") != key_id_of(public):
            return Check("signature", "fail", compared, "the key id does not match the key")
        value = bytes.fromhex(signature["value"])
        Ed25519PublicKey.from_public_bytes(public).verify(value, signed_bytes(document))
    except InvalidSignature:
        return Check("signature", "fail", compared, "the document was changed after it was signed")
    except (KeyError, ValueError, TypeError, RuleError) as error:
        return Check("signature", "fail", compared, f"unreadable signature: {error!r}")
    return Check("signature", "pass", compared)


def _signer(signature: Mapping[str, Any], keys: Sequence[bytes]) -> Check:
    signed_by = str(signature.get("key_id"))[:40]
    compared = f"key {signed_by} against {len(keys)} trusted"
    if not keys:
        return Check("signer", "fail", compared, NO_KEY)
    if signature.get("public_key") not in {key.hex() for key in keys}:
        return Check("signer", "fail", compared, "not signed by any trusted key")
    return Check("signer", "pass", compared)
