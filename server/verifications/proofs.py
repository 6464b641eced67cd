"""Store evidence in the transaction that ends a verification, and sign it as a proof."""

import base64
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, Literal, cast

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import canonical, sha256_of
from finishline.rules.measurements import PrecisionName
from finishline.rules.proof.proof import (
    ENVELOPE_NAME,
    FORMAT,
    LOGS_FOLDER,
    PAYLOAD_TYPE,
    AttemptPart,
    BenchmarkPart,
    CalibrationPart,
    ClaimPart,
    ContestPart,
    Division,
    DrawPart,
    LogFile,
    PostedEvaluation,
    Row,
    SubmissionPart,
    Table,
    VerificationPart,
    pre_authentication,
)
from finishline.rules.submissions.claim import TrainedWith
from finishline.rules.verification.messages import Failure
from server.base.artifacts import CHUNK_BYTES, ArtifactStore, pieces
from server.base.database import (
    Services,
    ServicesDep,
    insert_missing,
    moment_text,
    state_of,
    utc_now,
)
from server.base.errors import ConflictError, LostFileError
from server.base.events import VerificationChanged
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    Evidence,
    ReplayEventRow,
    SigningKey,
    Submission,
    Verification,
)
from server.base.places import code_version
from server.base.settings import MIB
from server.base.signing import Signer, load_signer
from server.base.standing import ENDED, claimed_runs, find_verification, purpose_of, stored_system
from server.base.visibility import Viewer
from server.benchmarks.definitions import benchmark_of
from server.people.callers import ViewerDep
from server.submissions.rows import runs_with_curves
from server.verifications.head_to_heads import contest_of
from server.verifications.jobs import sealed_with, trainings_of, trains_packages
from server.verifications.report import posted_events
from server.verifications.views import shown_report


class KeyView(Schema):
    """A public key in hex. `id` is the first 16 hex digits of its SHA-256."""

    id: str
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str
    created_at: datetime
    current: bool


class KeyList(Schema):
    """Every key this server has signed with, newest first."""

    keys: list[KeyView]


router = APIRouter(tags=["proofs"])
DSSE = "application/vnd.dsse.envelope.v1+json"
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`proof.dsse.json` and, under `logs/`, the claim's files, named by their "
        "SHA-256.",
        "content": {
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
            DSSE: {"schema": {"type": "object"}},
        },
    }
}
Format = Annotated[
    Literal["zip", "dsse"], Query(alias="format", description="dsse: the envelope alone.")
]
# The earliest moment of a zip, so that the same proof is the same bytes.
MOMENT = (1980, 1, 1, 0, 0, 0)
IN_MEMORY_BYTES = 8 * MIB


def proof_parts(session: Session, verification: Verification) -> Table:
    """Collect a proof's parts by name. Raises ConflictError if the job leaves no proof."""
    submission = verification.submission
    if submission is None or not leaves_proof(verification):
        raise ConflictError(
            f"Verification {verification.id} is a {purpose_of(verification).words.name}: only a "
            "replay, the measurement of code and a head-to-head with code have a proof."
        )
    kept, judged_by = session.get(Evidence, verification.id), benchmark_of(session, verification)
    sha256 = kept.benchmark_sha256 if kept is not None else verification.benchmark_sha256
    row = session.get_one(BenchmarkDefinition, sha256)
    parts: dict[str, BaseModel] = {
        "verification": VerificationPart(
            id=verification.id,
            state=verification.state,  # type: ignore[arg-type]  # it has ended
            reason=verification.reason,
            created_at=moment_text(verification.created_at),
            ended_at=_text(verification.ended_at),
        ),
        "benchmark": BenchmarkPart(id=row.benchmark_id, sha256=sha256, definition=row.content),
        "draw": DrawPart(
            seal=verification.seal,
            nonce=verification.nonce,
            runs=verification.runs,
            seeds=verification.seeds,
            beside=sealed_with(verification, judged_by, trainings_of(verification)),
        ),
    }
    return {name: part.model_dump() for name, part in parts.items()} | {
        "calibration": _calibration_part(verification, judged_by),
        "submission": kept.submission if kept is not None else both_parts(session, verification),
        "plan": {
            "control_points": verification.control_points,
            "max_attempts": verification.max_attempts,
            "lease_seconds": verification.lease_seconds,
            "limit_seconds": verification.limit_seconds,
        }
        | _contest_part(session, verification),
        "attempts": [_attempt_part(session, item).model_dump() for item in verification.attempts],
        "report": None if verification.state == "cancelled" else shown_report(verification),
        "verdict": {"outcome": verification.outcome, "reasons": verification.reasons},
        "code": kept.code if kept is not None else code_part(session),
    }


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment_text(moment)


def _contest_part(session: Session, verification: Verification) -> Table:
    if verification.against_id is None:
        return {}
    contest = contest_of(session, verification)
    part = ContestPart(threshold=contest.threshold, spread=contest.spread, earlier=[])
    earlier = [shown_report(stage) for stage in verification.earlier_stages]
    return {"contest": part.model_dump() | {"earlier": earlier}}


def _calibration_part(verification: Verification, judged_by: Benchmark) -> Table | None:
    if verification.calibration_id is None:
        return None
    runs = list(judged_by.reference_runs)
    return CalibrationPart(id=verification.calibration_id, runs=runs).model_dump(mode="json")


def _attempt_part(session: Session, attempt: Attempt) -> AttemptPart:
    """Show the posted evaluations of an unreported attempt, so that all attempts are visible."""
    slack, evaluations = attempt.clock_slack_seconds, list[PostedEvaluation]()
    if attempt.state != "done":
        rows = session.scalars(
            select(ReplayEventRow.event)
            .where(ReplayEventRow.attempt_id == attempt.id)
            .order_by(ReplayEventRow.sequence)
        )
        names = ("run", "epoch", "samples", "seconds", "quality")
        evaluations = [
            PostedEvaluation(**{name: event[name] for name in names})
            for event in rows
            if event["kind"] == "evaluation"
        ]
    return AttemptPart(
        number=attempt.number,
        state=attempt.state,
        worker=attempt.worker,
        started_at=_text(attempt.started_at),
        ended_at=_text(attempt.ended_at),
        failure=Failure(**attempt.failure) if attempt.failure is not None else None,
        evaluations=evaluations,
        posted=None if slack is None else posted_events(session, attempt),
        clock_slack_seconds=slack,
    )


def leaves_proof(verification: Verification) -> bool:
    """Check whether a job has a proof: a replay, a measurement, or a head-to-head with code."""
    is_head_to_head = verification.against_id is not None and trains_packages(verification)
    return is_head_to_head or purpose_of(verification).fills_pool


def keep_evidence(session: Session, event: VerificationChanged) -> None:
    """Store the evidence when a verification ends, so that a later rescoring leaves it as it is."""
    verification = event.verification
    if event.moment not in ENDED or not leaves_proof(verification):
        return
    insert_missing(
        session,
        Evidence,
        verification_id=verification.id,
        benchmark_sha256=verification.benchmark_sha256,
        submission=both_parts(session, verification),
        code=code_part(session),
        created_at=utc_now(),
    )


def code_part(session: Session) -> dict[str, Any]:
    """Return the version of the running code, as plain JSON."""
    return asdict(code_version(state_of(session, Services).settings.code_commit))


def both_parts(session: Session, verification: Verification) -> dict[str, Any]:
    """Return the submission of a proof, with the other side of a head-to-head in it."""
    submission, against = verification.submission, verification.against
    if submission is None:
        raise ValueError(f"verification {verification.id} has no submission")
    part = submission_part(session, submission)
    return part if against is None else part | {"against": submission_part(session, against)}


def submission_part(session: Session, submission: Submission) -> dict[str, Any]:
    """Return a submission of a proof, as plain JSON."""
    part = SubmissionPart(
        id=submission.id,
        submitter=submission.submitter,
        division=cast(Division, submission.division),
        submitted_at=moment_text(submission.submitted_at),
        claim_sha256=submission.claim_sha256,
        claim=ClaimPart(
            model=submission.claimed_model or submission.model,
            framework=submission.claimed_framework or submission.framework,
            hyperparameters=dict(submission.hyperparameters),
            system=stored_system(submission.system),
            precision=cast(PrecisionName | None, submission.precision),
            trained_with=cast(TrainedWith, submission.trained_with),
        ),
        logs=[
            LogFile(file=run.file, sha256=run.log_sha256, size_bytes=run.log_bytes)
            for run in submission.runs
        ],
        runs=claimed_runs(submission),
        curves=[
            [cast(Row, tuple(row)) for row in run.curve]
            for run in runs_with_curves(session, submission.id)
        ],
        result=submission.result,
        waivers=submission.waivers or [],
    )
    return part.model_dump(mode="json", exclude={"against"})


@dataclass(frozen=True)
class SignedProof:
    """JSON of a signed proof, and the hashes of the files it names."""

    content: bytes
    files: tuple[str, ...]


def sign_proof(services: Services, verification_id: str, viewer: Viewer) -> SignedProof:
    """Sign the statement of an ended verification. Its draw is sealed until then."""
    with services.database.read(viewer) as session:
        verification = find_verification(session, verification_id)
        if verification.state not in ENDED:
            raise ConflictError(
                f"Verification {verification_id} is {verification.state}; its proof is available "
                "once it has ended."
            )
        if not verification.nonce:
            raise ConflictError(
                f"Verification {verification_id} was under way at the server that this one was "
                "made from: its draw stayed sealed there, and there is no proof of it."
            )
        parts = proof_parts(session, verification)
    submission = parts["submission"]
    against = submission.get("against")
    other = () if against is None else (against["claim_sha256"],)
    files = (submission["claim_sha256"], *other, *(log["sha256"] for log in submission["logs"]))
    payload = canonical(statement_of(parts, files))
    signer = current_signer(services)
    signature = signer.sign(pre_authentication(payload))
    content = write_envelope(payload, key_id=signer.key_id, signature=signature)
    return SignedProof(content, files)


def current_signer(services: Services) -> Signer:
    """Load the signer of the current key, and list its public half."""
    signer = load_signer(services.settings.signing_key_path)
    with services.database.read() as session:
        known = session.get(SigningKey, signer.key_id) is not None
    if not known:
        with services.database.write() as session:
            insert_missing(
                session,
                SigningKey,
                id=signer.key_id,
                public_key=signer.public_key,
                created_at=utc_now(),
            )
    return signer


STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:finishline:proof:2"


def write_envelope(payload: bytes, *, key_id: str, signature: bytes) -> bytes:
    """Write the envelope as RFC 8785 JSON, so that the same proof is the same bytes."""
    payload64, sig = (base64.b64encode(content).decode() for content in (payload, signature))
    signatures = [{"keyid": key_id, "sig": sig}]
    return canonical({"payload": payload64, "payloadType": PAYLOAD_TYPE, "signatures": signatures})


def statement_of(parts: Mapping[str, Any], files: Iterable[str]) -> Table:
    """State a proof's parts, and its files by their SHA-256."""
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


@router.get("/verifications/{verification_id}/proof", response_class=Response, responses=ANSWERS)
def get_proof(
    verification_id: str, services: ServicesDep, viewer: ViewerDep, kind: Format = "zip"
) -> Response:
    """Download the signed evidence of a verdict. `finishline proof` checks it anywhere."""
    signed = sign_proof(services, verification_id, viewer)
    if kind == "dsse":
        return Response(signed.content, media_type=DSSE)
    bundle = write_bundle(signed.content, signed.files, services.artifacts)
    name = f'attachment; filename="proof-{verification_id}.zip"'
    return StreamingResponse(
        pieces(bundle), media_type="application/zip", headers={"Content-Disposition": name}
    )


@router.get("/keys")
def list_keys(services: ServicesDep) -> KeyList:
    """List every public key that signed proofs of this server, current or earlier."""
    current = current_signer(services).key_id
    newest_first = select(SigningKey).order_by(SigningKey.created_at.desc(), SigningKey.id)
    with services.database.read() as session:
        keys = session.scalars(newest_first)
        return KeyList(keys=[KeyView.of(key, current=key.id == current) for key in keys])


def write_bundle(proof: bytes, files: Iterable[str], artifacts: ArtifactStore) -> IO[bytes]:
    """Write the zip of a proof and its stored files, and seek to its beginning."""
    target = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  the caller closes it
    try:
        with zipfile.ZipFile(target, "w") as bundle:
            bundle.writestr(_entry(ENVELOPE_NAME), proof)
            for sha256 in sorted(set(files)):
                _add(bundle, sha256, artifacts)
        target.seek(0)
    except BaseException:
        target.close()
        raise
    return target


def _add(bundle: zipfile.ZipFile, sha256: str, artifacts: ArtifactStore) -> None:
    try:
        source = artifacts.open(sha256)
    except OSError as error:
        raise LostFileError(sha256) from error
    with source, bundle.open(_entry(LOGS_FOLDER + sha256), "w") as target:
        shutil.copyfileobj(source, target, CHUNK_BYTES)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=MOMENT)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    entry.create_system = 3
    return entry
