"""Proofs: an in-toto statement in RFC 8785 form, in a DSSE envelope.

The signature is checked elsewhere: these rules know no cryptography but hashes.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.canonical import canonical, read_json, sha256_of
from finishline.rules.errors import RuleError

ENVELOPE_NAME = "proof.dsse.json"
LOGS_FOLDER = "logs/"
FORMAT = 2
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:finishline:proof:2"
STATEMENT_FIELDS = {"_type", "subject", "predicateType", "predicate"}
_SHA256 = re.compile("[0-9a-f]{64}")

Table = dict[str, Any]


@dataclass(frozen=True)
class Envelope:
    """A DSSE envelope: its payload, and signatures by the id of their key."""

    payload: bytes
    signatures: Sequence[tuple[str, bytes]]

    @property
    def signed_bytes(self) -> bytes:
        """DSSE's pre-authentication encoding, the bytes that are signed."""
        return pre_authentication(self.payload)


def pre_authentication(payload: bytes) -> bytes:
    """DSSE's PAE of a payload: version, type and payload, the last two behind their lengths."""
    return b"DSSEv1 %d %s %d %s" % (
        len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload,
    )  # fmt: skip


def write_envelope(payload: bytes, *, key_id: str, signature: bytes) -> bytes:
    """The envelope's JSON, in RFC 8785 form so that the same proof is the same bytes."""
    signed = {"keyid": key_id, "sig": base64.b64encode(signature).decode()}
    return canonical(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [signed],
        }
    )


def read_envelope(document: Mapping[str, Any]) -> Envelope:
    """Read an envelope; fields beyond DSSE's are ignored, as it asks. Raises RuleError."""
    found = document.get("payloadType")
    if found != PAYLOAD_TYPE:
        raise RuleError(f"got {str(found)[:60]!r}", field="payloadType", expected=PAYLOAD_TYPE)
    listed = document.get("signatures")
    if not isinstance(listed, list) or not listed:
        raise RuleError("none", field="signatures", expected="at least one signature")
    return Envelope(_base64(document, "payload"), [_signature(item) for item in listed])


def _signature(item: object) -> tuple[str, bytes]:
    if not isinstance(item, Mapping) or not isinstance(item.get("keyid"), str):
        raise RuleError("no keyid", field="signatures", expected="a keyid and a sig")
    return item["keyid"], _base64(item, "sig")


def _base64(table: Mapping[str, Any], field: str) -> bytes:
    """Decode standard base64 that has one spelling: padded, without spaces or spare bits."""
    text = table.get(field)
    try:
        if isinstance(text, str):
            content = base64.b64decode(text, validate=True)
            if base64.b64encode(content).decode() == text:
                return content
    except (ValueError, binascii.Error):
        pass
    raise RuleError("cannot be decoded", field=field, expected="standard base64")


def statement_of(parts: Mapping[str, Any], files: Iterable[str]) -> Table:
    """The statement on a proof's parts and on its files, which are named by their SHA-256."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": LOGS_FOLDER + sha256, "digest": {"sha256": sha256}}
            for sha256 in sorted(set(files))
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "format": FORMAT,
            **parts,
            "parts": {name: sha256_of(part) for name, part in parts.items()},
        },
    }


@dataclass(frozen=True)
class Statement:
    """A statement, read: the files it speaks of, by hash, and its predicate."""

    subjects: Sequence[str]
    predicate: Table


def read_statement(payload: bytes) -> Statement:
    """Read a payload that is byte for byte the RFC 8785 form of a statement. Raises RuleError."""
    document = read_json(payload, file="payload")
    if canonical(document) != payload:
        raise RuleError("not canonical", field="payload", expected="its RFC 8785 form")
    for field, expected in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if document.get(field) != expected:
            raise RuleError(
                f"got {str(document.get(field))[:60]!r}", field=field, expected=expected
            )
    predicate = document.get("predicate")
    if set(document) != STATEMENT_FIELDS or not isinstance(predicate, dict):
        names = ", ".join(sorted(STATEMENT_FIELDS))
        raise RuleError("other fields", field="statement", expected=names)
    if predicate.get("format") != FORMAT:
        found = str(predicate.get("format"))[:60]
        raise RuleError(f"got {found!r}", field="predicate.format", expected=f"{FORMAT}")
    listed = document["subject"]
    if not isinstance(listed, list):
        raise RuleError("not a list", field="subject", expected="files with their SHA-256")
    return Statement([_subject(item) for item in listed], predicate)


def _subject(item: object) -> str:
    """The hash of a subject, whose name says the same."""
    digest = item.get("digest") if isinstance(item, Mapping) else None
    sha256 = digest.get("sha256") if isinstance(digest, Mapping) else None
    is_hash = isinstance(sha256, str) and _SHA256.fullmatch(sha256)
    if not is_hash or item != {"name": f"{LOGS_FOLDER}{sha256}", "digest": {"sha256": sha256}}:
        raise RuleError(
            f"got {str(item)[:60]}", field="subject", expected="logs/SHA256 and its digest"
        )
    return str(sha256)


def check_subjects(subjects: Sequence[str], files: Mapping[str, bytes]) -> None:
    """Check that each file is a subject, once, and each subject a file. Raises RuleError."""
    if len(set(subjects)) != len(subjects):
        raise RuleError("a file is named twice", field="subject", expected="each file once")
    for sha256 in sorted(set(subjects) ^ set(files)):
        if sha256 in files:
            raise RuleError("no subject names it", file=LOGS_FOLDER + sha256, expected="a subject")
        raise RuleError("not in the bundle", file=LOGS_FOLDER + sha256, expected="every subject")
    for sha256 in subjects:
        if hashlib.sha256(files[sha256]).hexdigest() != sha256:
            raise RuleError("its bytes were changed", file=LOGS_FOLDER + sha256, expected=sha256)
