"""The audit log, the keys, the definitions, and every proof: does each still hold?"""

import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.errors import RuleError
from finishline.rules.proof.check import check_proof
from finishline.rules.proof.hash_chain import check_chain, read_json
from finishline.rules.proof.proof import key_id_of, signed_bytes
from finishline.rules.text import count_text
from server.artifacts import ArtifactStore
from server.audit.queries import all_records
from server.dependencies import Parts
from server.errors import ServerError
from server.exports.progress import Progress, silent
from server.integrity.findings import Findings
from server.models import BenchmarkDefinition, Evidence, SigningKey, Verification
from server.proofs.service import SignedProof, sign_proof
from server.submissions.log_files import LogFiles
from server.verifications.schemas import ENDED
from server.viewer import ORGANISER

ROWS_AT_ONCE = 100


def check_records(session: Session, findings: Findings) -> None:
    """The audit log's chain, the ids of the keys, the hashes of the definitions."""
    chain = check_chain(all_records(session))
    findings.count("audit records", chain.records)
    for problem in chain.problems:
        findings.fault(f"audit log, {problem}")
    for key in session.scalars(select(SigningKey)):
        findings.count("keys")
        if key_id_of(bytes.fromhex(key.public_key)) != key.id:
            findings.fault(f"signing key {key.id}: its public key has another id")
    for row in session.scalars(select(BenchmarkDefinition)):
        findings.count("definitions")
        if hashlib.sha256(row.content.encode()).hexdigest() != row.sha256:
            findings.fault(f"definition {row.sha256} of {row.benchmark_id}: its text was changed")


def check_evidence(parts: Parts, findings: Findings, say: Progress = silent) -> None:
    """Make the proof of every replay that ended, check its signature, and audit it."""
    with parts.database.read(ORGANISER) as session:
        known = set(session.scalars(select(SigningKey.public_key)))
        query = (
            select(Verification.id)
            .outerjoin(Evidence, Evidence.verification_id == Verification.id)
            .where(Verification.kind == "replay", Verification.state.in_(ENDED))
            .where(Verification.submission_id.is_not(None))
            .where(Verification.nonce != "")  # Its draw stayed at the server it was exported from.
            .order_by(Verification.id)
        )
        ids = list(session.scalars(query.execution_options(yield_per=ROWS_AT_ONCE)))
    for verification_id in ids:
        findings.count("proofs")
        try:
            proof = sign_proof(parts, verification_id, ORGANISER)
            _audit(proof, verification_id, parts.artifacts, known, findings)
        except (ServerError, RuleError, OSError) as error:
            findings.fault(f"proof of {verification_id}: {error}")
        say(f"{findings.looked_at['proofs']} of {count_text(len(ids), 'proof')}")


def _audit(
    proof: SignedProof,
    verification_id: str,
    store: ArtifactStore,
    known: set[str],
    findings: Findings,
) -> None:
    document = read_json(proof.content, file=f"proof of {verification_id}")
    signature = document["signature"]
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["public_key"]))
        public.verify(bytes.fromhex(signature["value"]), signed_bytes(document))
    except (InvalidSignature, ValueError):
        findings.fault(f"proof of {verification_id}: its signature is not over its content")
    if signature["public_key"] not in known:
        findings.fault(f"proof of {verification_id}: signed with a key that is not listed")
    names = sorted(set(proof.files))
    logs = LogFiles(names, lambda name: _read(store, name))
    for check in check_proof(document, logs):
        if check.result == "fail":
            findings.fault(f"proof of {verification_id}, {check.name}: {check.why}")


def _read(store: ArtifactStore, sha256: str) -> bytes:
    with store.open(sha256) as file:
        return file.read()
