"""Proof bundles taken apart, so that a test can change them, sign them again and pack them."""

import base64
import io
import json
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finishline.rules.benchmarks.benchmark import read_benchmark
from finishline.rules.canonical import canonical
from finishline.rules.proof.proof import (
    ENVELOPE_NAME,
    Envelope,
    part_hashes,
    pre_authentication,
    read_part,
)
from finishline.rules.verification.job import Draw, seal
from server.base.signing import load_signer
from server.verifications.proofs import statement_of, write_envelope


def zip_of(*entries, method=zipfile.ZIP_DEFLATED):
    """A zip of these entries, in order, also of a name that is there twice."""
    target = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of the duplicate name that is wanted here.
        with zipfile.ZipFile(target, "w", method) as opened:
            for name, content in entries:
                opened.writestr(name, content)
    return target.getvalue()


def files_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def seal_again(document):
    """Seal the draw of a document as it is, as only the server can."""
    benchmark, draw = document["benchmark"], document["draw"]
    definition = read_benchmark(benchmark["definition"].encode(), file=f"{benchmark['id']}.toml")
    sealed = Draw(tuple(draw["seeds"]), draw["nonce"])
    own = {"own_runs": draw["own_runs"]} if draw.get("own_runs") else {}
    submission_id = document["submission"]["id"]
    draw["seal"] = seal(definition, submission_id, sealed, beside=draw["beside"] | own)


def predicate_in(answer):
    return json.loads(base64.b64decode(answer.json()["payload"]))["predicate"]


@dataclass
class TakenApart:
    """A proof's document (the predicate), its files by hash, its key id and its signature."""

    document: dict[str, Any]
    files: dict[str, bytes]
    signing_key: Path
    statement: dict[str, Any]
    signed: tuple[str, bytes]

    def payload(self):
        return canonical(self.statement | {"predicate": self.document})

    def sign(self):
        self.document["parts"] = part_hashes(self.document)
        self.statement["subject"] = statement_of({}, self.files)["subject"]
        self.sign_payload(self.payload())

    def sign_payload(self, payload, *, key=None):
        signer = load_signer(key or self.signing_key)
        self.signed = (signer.key_id, signer.sign(pre_authentication(payload)))

    def pack(self, payload=None, *, envelope=None, more=()):
        key_id, signature = self.signed
        payload = self.payload() if payload is None else payload
        if envelope is None:
            envelope = write_envelope(payload, key_id=key_id, signature=signature)
        entries = [(ENVELOPE_NAME, envelope), *self.logs(), *more]
        return zip_of(*entries, method=zipfile.ZIP_STORED)

    def logs(self):
        return [(f"logs/{sha256}", log) for sha256, log in self.files.items()]


def take_apart(content, *, signing_key):
    files = files_of(content)
    envelope = read_part(Envelope, json.loads(files.pop(ENVELOPE_NAME)))
    logs = {name.removeprefix("logs/"): content for name, content in files.items()}
    statement = json.loads(envelope.payload)
    document = statement["predicate"]
    signed = (envelope.signatures[0].keyid, envelope.signatures[0].sig)
    return TakenApart(document, logs, signing_key, statement, signed)
