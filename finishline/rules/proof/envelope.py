"""Proofs: an in-toto statement in RFC 8785 form, in a DSSE envelope.

The signature is checked elsewhere: these rules know no cryptography but hashes.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from finishline.rules.canonical import canonical, read_json, sha256_of
from finishline.rules.errors import RuleError

ENVELOPE_NAME = "proof.dsse.json"
LOGS_FOLDER = "logs/"
FORMAT = 2
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:finishline:proof:2"
LARGEST_FIGURE = 1e100  # No run measures more, and the square of it is finite.

Table = dict[str, Any]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Part(BaseModel):
    """A part of a proof. No value is converted, and no field is unknown."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


Kind = TypeVar("Kind", bound=Part)


def read_part(kind: type[Kind], document: Mapping[str, Any]) -> Kind:
    """Read a document as a part. Raises RuleError naming the faulty field."""
    if _largest(document) > LARGEST_FIGURE:
        raise RuleError("a figure out of range", expected=f"at most {LARGEST_FIGURE:g}")
    try:
        # As JSON, in which a list is read as a tuple where a part has one.
        return kind.model_validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise RuleError("missing", field=field, expected="a value") from error
        found, expected = str(first["input"])[:60], first["msg"].removeprefix("Input should be ")
        raise RuleError(f"got {found!r}", field=field, expected=expected) from error


def _largest(value: Any) -> float:
    if isinstance(value, Mapping):
        return max(map(_largest, value.values()), default=0.0)
    if isinstance(value, list):
        return max(map(_largest, value), default=0.0)
    return abs(value) if isinstance(value, int | float) else 0.0


def _from_base64(text: object) -> bytes:
    """Decode standard base64 that has one spelling: padded, without spaces or spare bits."""
    content = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    if base64.b64encode(content).decode() != text:
        raise ValueError("expected standard base64")
    return content


Base64 = Annotated[bytes, BeforeValidator(_from_base64)]


class Signature(Part, extra="ignore"):
    """A signature and the id of its key."""

    keyid: str
    sig: Base64


class Envelope(Part, extra="ignore"):
    """A DSSE envelope. Fields beyond DSSE's are ignored, as it asks."""

    payload: Base64
    payloadType: Literal["application/vnd.in-toto+json"]  # noqa: N815 - DSSE's name
    signatures: Annotated[list[Signature], Field(min_length=1)]

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


class Digest(Part):
    """The digest of a file."""

    sha256: Sha256


class Subject(Part):
    """A file that a statement is about. Its name says its hash."""

    name: str
    digest: Digest


class Statement(Part):
    """An in-toto statement on a proof's files and its predicate."""

    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subject: list[Subject]
    predicateType: Literal["urn:finishline:proof:2"]  # noqa: N815 - in-toto's name
    predicate: Table

    @property
    def hashes(self) -> list[str]:
        """The SHA-256 of each file."""
        return [subject.digest.sha256 for subject in self.subject]


def read_statement(payload: bytes) -> Statement:
    """Read a payload that is byte for byte the RFC 8785 form of a statement. Raises RuleError."""
    document = read_json(payload, file="payload")
    if canonical(document) != payload:
        raise RuleError("not canonical", field="payload", expected="its RFC 8785 form")
    statement = read_part(Statement, document)
    if statement.predicate.get("format") != FORMAT:
        found = str(statement.predicate.get("format"))[:60]
        raise RuleError(f"got {found!r}", field="predicate.format", expected=f"{FORMAT}")
    for subject in statement.subject:
        if subject.name != LOGS_FOLDER + subject.digest.sha256:
            raise RuleError(f"got {subject.name[:60]!r}", field="subject", expected="logs/SHA256")
    return statement


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
