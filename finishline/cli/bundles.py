"""Read proof bundles and exports within limits and in memory, and check their signatures."""

import hashlib
import io
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from finishline.cli.errors import CliError, UsageError
from finishline.rules.canonical import read_json
from finishline.rules.errors import RuleError
from finishline.rules.proof.check import WITHOUT_LOGS, Check, check_proof
from finishline.rules.proof.proof import (
    ENVELOPE_NAME,
    LOGS_FOLDER,
    Envelope,
    check_subjects,
    key_id_of,
    read_part,
    read_statement,
    signed_bytes,
)
from finishline.rules.text import count_text, names_text

MIB = 1024 * 1024
PROOF_LIMIT_BYTES = 32 * MIB
FILE_LIMIT_BYTES = 64 * MIB
BUNDLE_LIMIT_BYTES = 512 * MIB  # Of the zip, and of its unpacked content.
FILES_LIMIT = 110  # A proof, a claim, and the most run logs of a submission.
END_BYTES = 22  # The end of a zip without a comment.
# A RuntimeError is an encrypted file.
UNREADABLE = (BadZipFile, EOFError, OSError, RuntimeError, ValueError, struct.error, zlib.error)
LOG_NAME = re.compile(f"{LOGS_FOLDER}[0-9a-f]{{64}}")
MANIFEST = "manifest.json"
EXPORT_FORMAT = "finishline-export-2"
KEY_BYTES = 32
KEY_FILE_LIMIT_BYTES = 1024 * 1024
NO_KEY = (
    "no trusted key given, and anyone can sign with a key of their own; pass the server's public "
    "key with --key"
)
NOT_TRUSTED = "not signed by any trusted key"
CHANGED = "the document was changed after it was signed"
Made = TypeVar("Made")


@dataclass(frozen=True)
class Bundle:
    """A proof's envelope, as JSON, and its files by hash: None if it came without."""

    proof: dict[str, Any]
    logs: dict[str, bytes] | None


def read_bundle(content: bytes) -> Bundle:
    """Read a zip, or the JSON of a proof. Raises RuleError."""
    if len(content) > BUNDLE_LIMIT_BYTES:
        raise RuleError("too large", expected=f"at most {BUNDLE_LIMIT_BYTES} bytes")
    if not content.startswith(b"PK"):
        if len(content) > PROOF_LIMIT_BYTES:
            raise RuleError("too large", expected=f"at most {PROOF_LIMIT_BYTES} bytes")
        return Bundle(read_json(content, file="proof"), logs=None)
    files = _unpack(content)
    if ENVELOPE_NAME not in files:
        raise RuleError("has no proof", expected=f"one {ENVELOPE_NAME}")
    proof = read_json(files.pop(ENVELOPE_NAME), file=ENVELOPE_NAME)
    return Bundle(proof, {name.removeprefix(LOGS_FOLDER): found for name, found in files.items()})


def _unpack(content: bytes) -> dict[str, bytes]:
    """Return the files of a zip by name, within the limits. The signed subjects pin their bytes."""
    if content[-END_BYTES:][:4] != b"PK\5\6":
        expected = "a proof bundle, with nothing behind its end"
        raise RuleError("not a readable zip", expected=expected)
    files: dict[str, bytes] = {}
    try:
        with ZipFile(io.BytesIO(content)) as opened:
            entries = opened.infolist()
            if len(entries) > FILES_LIMIT:
                found = count_text(len(entries), "file")
                raise RuleError(found, expected=f"at most {FILES_LIMIT}")
            for entry in entries:
                name = entry.orig_filename
                limit = PROOF_LIMIT_BYTES if name == ENVELOPE_NAME else FILE_LIMIT_BYTES
                limit = min(limit, BUNDLE_LIMIT_BYTES - sum(map(len, files.values())))
                if name != ENVELOPE_NAME and not LOG_NAME.fullmatch(name):
                    expected = f"{ENVELOPE_NAME} or {LOGS_FOLDER}SHA256"
                    raise RuleError("unexpected file name", file=name[:100], expected=expected)
                if entry.filename in files:
                    raise RuleError("appears twice", file=entry.filename, expected="each file once")
                if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                    # Other methods unpack without a limit.
                    why = "packed in another way"
                    raise RuleError(why, file=entry.filename, expected="stored or deflated")
                with opened.open(entry) as file:
                    files[entry.filename] = file.read(limit + 1)
                if len(files[entry.filename]) > limit:
                    expected = f"at most {limit} bytes"
                    raise RuleError("too large unpacked", file=entry.filename, expected=expected)
    except RuleError:
        raise
    except UNREADABLE as error:
        raise RuleError(f"not a readable zip: {error}", expected="a proof bundle") from error
    return files


@dataclass(frozen=True)
class Checked:
    """All checks of a bundle, and its document as far as it could be read."""

    checks: list[Check]
    document: Mapping[str, Any]

    @property
    def failed(self) -> list[str]:
        return [check.name for check in self.checks if check.result == "fail"]


def check_bundle(content: bytes, keys: Sequence[bytes]) -> Checked:
    """Check a proof with the keys to trust. The last check may end it early."""
    checks: list[Check] = []

    def step(name: str, compared: str, make: Callable[[], Made]) -> Made | None:
        try:
            made = make()
        except RuleError as error:
            checks.append(Check(name, "fail", compared, str(error)))
            return None
        checks.append(Check(name, "pass", compared))
        return made

    bundle = step("bundle", "each file once, and nothing beside them", lambda: read_bundle(content))
    if bundle is None:
        return Checked(checks, {})
    compared = "type of the payload, its base64, its signatures"
    envelope = step("envelope", compared, lambda: read_part(Envelope, bundle.proof))
    if envelope is None:
        return Checked(checks, {})
    checks += _check_signed(envelope, keys)
    compared = "the payload's RFC 8785 form, its types and fields"
    statement = step("statement", compared, lambda: read_statement(envelope.payload))
    if statement is None:
        return Checked(checks, {})
    compared, logs = "SHA-256 of every file, and the subjects that name them", bundle.logs
    if logs is None:
        checks.append(Check("subjects", "open", compared, WITHOUT_LOGS))
    else:
        step("subjects", compared, lambda: check_subjects(statement.hashes, logs))
    checks += check_proof(statement.predicate, logs)
    return Checked(checks, statement.predicate)


def _check_signed(envelope: Envelope, keys: Sequence[bytes]) -> Iterator[Check]:
    """Check the trusted signatures, of which there must be at least one."""
    known = {key_id_of(key): key for key in keys}
    named = [each for each in envelope.signatures if each.keyid in known]
    why = "" if named else "no trusted key to check it with"
    try:
        for each in named:
            key = Ed25519PublicKey.from_public_bytes(known[each.keyid])
            key.verify(each.sig, envelope.signed_bytes)
    except InvalidSignature:
        why = CHANGED
    yield _check("signature", "Ed25519 signature over the payload and its type", why)
    signed_by = ", ".join(each.keyid[:40] for each in envelope.signatures)
    compared = f"key {signed_by} against {len(keys)} trusted"
    yield _check("signer", compared, "" if named else NOT_TRUSTED if keys else NO_KEY)


def read_keys(path: Path) -> list[bytes]:
    """Read a file with one public key in hex, or the JSON of /api/v1/keys. Raises CliError."""
    try:
        with path.open("rb") as file:
            text = file.read(KEY_FILE_LIMIT_BYTES).decode()
        return keys_in(json.loads(text)) if text.lstrip().startswith("{") else [_key(text.strip())]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"No public key in {path} ({why}): expected 64 hex digits, or the JSON of "
            "GET /api/v1/keys."
        ) from error


def keys_in(view: Mapping[str, Any]) -> list[bytes]:
    """Return the public keys of a server. Raises ValueError, KeyError or TypeError."""
    return [_key(item["public_key"]) for item in view["keys"]]


def _key(text: str) -> bytes:
    key = bytes.fromhex(text)
    if len(key) != KEY_BYTES:
        raise ValueError(f"{len(key)} bytes")
    return key


def check_export(folder: Path, keys: Sequence[bytes]) -> Checked:
    """Check an export: signature, signer and exact files. Raises CliError for another folder."""
    try:
        document = read_json((folder / MANIFEST).read_bytes(), file=MANIFEST)
        if document.get("format") != EXPORT_FORMAT:
            got = f"got {document.get('format')!r}"
            raise RuleError(got, file=MANIFEST, expected=EXPORT_FORMAT)
        checks = [*_check_manifest(document, keys), *_check_contents(folder, document)]
    except (OSError, RuleError, ValueError, TypeError, KeyError, AttributeError) as error:
        why: object = error
        if isinstance(error, FileNotFoundError):
            why = f"it has no {Path(error.filename).name}"
        raise CliError(
            f"{folder} is not an export: {why}. Expected a folder with a {MANIFEST} as "
            "`finishline admin export` makes it; unpack an archive first."
        ) from error
    return Checked(checks, document)


def _check_manifest(document: Mapping[str, Any], keys: Sequence[bytes]) -> Iterator[Check]:
    """Check a manifest's signature, and its signer among `keys`."""
    found = document.get("signature")
    signature = found if isinstance(found, Mapping) else {}
    why = ""
    try:
        public = _key(signature["public_key"])
        if signature.get("key_id") == key_id_of(public):
            value = bytes.fromhex(signature["value"])
            Ed25519PublicKey.from_public_bytes(public).verify(value, signed_bytes(document))
        else:
            why = "the key id does not match the key"
    except InvalidSignature:
        why = CHANGED
    except (KeyError, ValueError, TypeError, RuleError) as error:
        why = f"unreadable signature: {error!r}"
    yield _check("signature", "Ed25519 signature over the rest of the document", why)
    is_known = any(signature.get("public_key") == key.hex() for key in keys)
    compared = f"key {str(signature.get('key_id'))[:40]} against {len(keys)} trusted"
    yield _check("signer", compared, "" if is_known else NOT_TRUSTED if keys else NO_KEY)


def _check_contents(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    listed: Mapping[str, str] = document["files"]
    wrong = []
    for name, expected in sorted(listed.items()):
        path = folder / name
        # A signed name stays inside the folder, even if its signer is hostile.
        if path.resolve().is_relative_to(folder.resolve()) and path.is_file():
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == expected:
                    continue
        wrong.append(name)
    why = f"missing or changed: {names_text(wrong)}" if wrong else ""
    yield _check("files", f"SHA-256 of {count_text(len(listed), 'file')}", why)
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    others = sorted({str(path.relative_to(folder)) for path in found} - listed.keys() - {MANIFEST})
    why = f"not signed: {names_text(others)}" if others else ""
    yield _check("nothing else", "no file but those that are listed", why)


def _check(name: str, compared: str, why: str) -> Check:
    return Check(name, "fail" if why else "pass", compared, why)
