"""Check that everything that was promised is still there and unchanged."""

import hashlib
import time
from contextlib import closing
from dataclasses import dataclass, field

from pydantic import ValidationError
from sqlalchemy import Connection, or_, select
from sqlalchemy.orm import Session

from finishline.cli.bundles import check_bundle
from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import check_chain
from finishline.rules.proof.proof import key_id_of
from server.base.artifacts import CHUNK_BYTES, ArtifactStore
from server.base.database import Services
from server.base.errors import ServerError, UnavailableError
from server.base.models import (
    BenchmarkDefinition,
    Evidence,
    RunRow,
    SigningKey,
    Submission,
    Verification,
)
from server.base.standing import ENDED, names_where
from server.base.visibility import ORGANISER
from server.benchmarks.definitions import files_of_added
from server.operations.export import list_logs
from server.people.audit import all_records
from server.verifications.proofs import current_signer, sign_proof, write_bundle

# A file is in the store a moment before its row is in the database.
YOUNG_SECONDS = 3600.0


@dataclass
class Findings:
    """Counts of the things looked at by name, faults, which fail a check, and unnamed files."""

    looked_at: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    def count(self, name: str, number: int = 1) -> None:
        """Count so many more."""
        self.looked_at[name] = self.looked_at.get(name, 0) + number


def check_server(services: Services, *, files: bool, proofs: bool) -> Findings:
    """Check everything that is asked for, while the server goes on."""
    findings = Findings()
    current_signer(services)  # Listed before the keys are read, as the first proof would do it.
    with services.database.read() as session:
        check_records(session, findings)
    if files:
        with services.database.read_snapshot(ORGANISER) as session:
            check_files(session.connection(), services.artifacts, findings)
    if proofs:
        check_evidence(services, findings)
    return findings


def check_records(session: Session, findings: Findings) -> None:
    """The audit log's chain, the ids of the keys, the hashes of the definitions."""
    chain = check_chain(all_records(session))
    findings.count("audit records", chain.records)
    for problem in chain.problems:
        findings.faults.append(f"audit log, {problem}")
    for key in session.scalars(select(SigningKey)):
        findings.count("keys")
        if key_id_of(bytes.fromhex(key.public_key)) != key.id:
            findings.faults.append(f"signing key {key.id}: its public key has another id")
    for row in session.scalars(select(BenchmarkDefinition)):
        findings.count("definitions")
        if hashlib.sha256(row.content.encode()).hexdigest() != row.sha256:
            findings.faults.append(
                f"definition {row.sha256} of {row.benchmark_id}: its text was changed"
            )


def check_evidence(services: Services, findings: Findings) -> None:
    """Make the proof of every job that left evidence, and check it as `finishline proof` does."""
    with services.database.read(ORGANISER) as session:
        keys = [bytes.fromhex(key.public_key) for key in session.scalars(select(SigningKey))]
        has_proof = Verification.kind.in_(names_where(lambda purpose: purpose.fills_pool))
        kept = Verification.id.in_(select(Evidence.verification_id))  # Also of head-to-heads.
        query = (
            select(Verification.id)
            .where(or_(has_proof, kept), Verification.state.in_(ENDED))
            .where(Verification.submission_id.is_not(None))
            .order_by(Verification.id)
        )
        ids = list(session.scalars(query))
    for verification_id in ids:
        findings.count("proofs")
        name = f"proof of {verification_id}"
        try:
            proof = sign_proof(services, verification_id, ORGANISER)
            with write_bundle(proof.content, proof.files, services.artifacts) as bundle:
                checked = check_bundle(bundle.read(), keys)
        except (ServerError, ValidationError, RuleError, OSError) as error:
            findings.faults.append(f"{name}: {error}")
            continue
        failed = (check for check in checked.checks if check.result == "fail")
        findings.faults += [f"{name}, {check.name}: {check.why}" for check in failed]


def check_files(connection: Connection, store: ArtifactStore, findings: Findings) -> None:
    """Read every file that a row of a snapshot names. List files that no row names."""
    named = list_logs(connection)
    ages = stored_files(store)
    for name in sorted(ages.keys() - set(named)):
        if ages[name] > YOUNG_SECONDS:
            findings.orphans.append(f"{name}: no row names this file")
    for name in named:
        findings.count("files")
        try:
            digest = hashlib.sha256()
            with closing(store.open(name)) as file:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
        except (OSError, UnavailableError) as error:
            findings.faults.append(
                f"{name}: cannot be read ({error}); named by {named_by(connection, name)}"
            )
            continue
        if digest.hexdigest() != name:
            findings.faults.append(
                f"{name}: its content has hash {digest.hexdigest()}; "
                f"named by {named_by(connection, name)}"
            )


def named_by(connection: Connection, sha256: str) -> str:
    """The submission, the run of one, or the benchmark that has this file."""
    run = connection.execute(
        select(RunRow.submission_id, RunRow.file).where(RunRow.log_sha256 == sha256).limit(1)
    ).first()
    if run is not None:
        return f"submission {run.submission_id} as {run.file}"
    if pinned := files_of_added(connection).get(sha256):
        return "benchmark {} as {}".format(*pinned)
    claim = select(Submission.id).where(Submission.claim_sha256 == sha256).limit(1)
    return f"submission {connection.scalar(claim)} as its claim"


def stored_files(store: ArtifactStore) -> dict[str, float]:
    """Seconds since each file of a store was written. Uploads under way are left out."""
    now = time.time()
    if store.bucket is not None:
        return {name: now - changed for name, changed in store.bucket.list_all()}
    return {
        path.name: now - path.lstat().st_mtime
        for folder in store.folder.iterdir()
        if folder != store.incoming and folder.is_dir()
        for path in folder.iterdir()
    }
