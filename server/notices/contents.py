"""What an event tells: names, figures, and where to read the rest."""

from datetime import datetime
from typing import Any
from urllib.parse import quote

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.models import BenchmarkDefinition, Calibration, Submission, Verification, WorkerRow

API = "/api/v1"
# Names are a stranger's; a message stays small however long one is.
LONGEST_NAME = 200
Content = dict[str, Any]


def submission_content(submission: Submission) -> Content:
    """A submission and its figures; those it has none of are None. Its cost follows the price book
    and is read where the link leads.
    """
    return {
        "submission": {
            "id": submission.id,
            "benchmark": submission.benchmark_id,
            "division": submission.division,
            "kind": submission.kind,
            "model": submission.model[:LONGEST_NAME],
            "submitter": submission.submitter,
            "status": submission.status,
            "tta_seconds": submission.tta_seconds,
            "latency_ms": submission.latency_ms,
        },
        "links": links_of("submissions", submission.id),
    }


def record_check_content(submission: Submission, *, since: datetime) -> Content:
    """The pool that may have taken a record, and the moment since which."""
    return {"pool": submission.pool_id, "since": since.isoformat()}


def verification_content(
    session: Session, verification: Verification, *, attempt: dict[str, Any] | None
) -> Content:
    """A verification, the attempt that is told of, and the submission it is about."""
    submission = verification.submission
    return {
        "verification": {
            "id": verification.id,
            "kind": verification.kind,
            "benchmark": _benchmark_of(session, verification),
            "state": verification.state,
            "outcome": verification.outcome,
        },
        "attempt": attempt,
        "submission": None if submission is None else submission_content(submission)["submission"],
        "links": links_of("verifications", verification.id),
    }


def calibration_content(calibration: Calibration) -> Content:
    """A calibration by its number."""
    return {
        "calibration": {
            "id": calibration.id,
            "benchmark": calibration.benchmark_id,
            "version": calibration.version,
            "state": calibration.state,
        },
        "links": links_of("calibrations", calibration.id),
    }


def worker_content(
    name: str, worker: WorkerRow | None, *, why: str, attempt_id: str | None
) -> Content:
    """A worker, and why it is told of."""
    return {
        "worker": {
            "name": name,
            "hardware_class": worker.hardware_class if worker is not None else None,
            "why": why,
            "attempt": attempt_id,
        },
        "links": {"api": f"{API}/workers", "page": f"/workers/{quote(name, safe='')}"},
    }


def links_of(kind: str, subject_id: str) -> dict[str, str]:
    """Where something is read: by programs and by people."""
    return {"api": f"{API}/{kind}/{subject_id}", "page": f"/{kind}/{subject_id}"}


def _benchmark_of(session: Session, verification: Verification) -> str | None:
    if verification.submission is not None:
        return verification.submission.benchmark_id
    return session.scalar(
        select(BenchmarkDefinition.benchmark_id).where(
            BenchmarkDefinition.sha256 == verification.benchmark_sha256
        )
    )
