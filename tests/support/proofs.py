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
from finishline.rules.proof.envelope import (
    ENVELOPE_NAME,
    canonical,
    pre_authentication,
    read_envelope,
    read_statement,
    statement_of,
    write_envelope,
)
from finishline.rules.proof.proof import PARTS, part_hashes
from finishline.rules.verification.job import Draw, seal
from server.base.signing import load_signer


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
    """The files of a zip by name."""
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def seal_again(document):
    """Seal the draw of a document as it is, as only the server can."""
    benchmark, draw = document["benchmark"], document["draw"]
    definition = read_benchmark(benchmark["definition"].encode(), file=f"{benchmark['id']}.toml")
    sealed = Draw(tuple(draw["seeds"]), draw["nonce"], draw["own_runs"])
    submission_id = document["submission"]["id"]
    draw["seal"] = seal(definition, submission_id, sealed, beside=draw["beside"])


def predicate_in(answer):
    """The predicate of a fetched envelope."""
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
        """The RFC 8785 form of the statement."""
        return canonical(self.statement | {"predicate": self.document})

    def sign(self):
        """Hash and sign the document as it is, as only the server can."""
        self.document["parts"] = part_hashes(self.document)
        self.statement["subject"] = statement_of({}, self.files)["subject"]
        self.sign_payload()

    def sign_payload(self):
        """Sign the statement as it is."""
        signer = load_signer(self.signing_key)
        self.signed = (signer.key_id, signer.sign(pre_authentication(self.payload())))

    def proof(self):
        """Name and content of the proof's JSON."""
        key_id, signature = self.signed
        return ENVELOPE_NAME, write_envelope(self.payload(), key_id=key_id, signature=signature)

    def entries(self):
        """The files of its zip."""
        logs = [(f"logs/{sha256}", log) for sha256, log in self.files.items()]
        return [self.proof(), *logs]


def take_apart(client, verification_id, *, signing_key):
    """Fetch a proof from a server, with the files of its zip."""
    address = f"/api/v1/verifications/{verification_id}/proof"
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    files = files_of(answer.content)
    envelope = read_envelope(json.loads(files.pop(ENVELOPE_NAME)))
    logs = {name.removeprefix("logs/"): content for name, content in files.items()}
    document = read_statement(envelope.payload).predicate
    assert set(document) == {"format", "parts", *PARTS}
    return TakenApart(
        document, logs, signing_key, json.loads(envelope.payload), envelope.signatures[0]
    )
