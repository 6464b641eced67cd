"""Grant a worker with a lease the packages of its job and the task that draws their data."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import TrainingPolicy
from finishline.rules.verification.messages import (
    PACKAGE_PREFIX,
    PackageContent,
    TrainingGrant,
)
from server.base.errors import ConflictError, NotFoundError
from server.base.models import Attempt, TrainingPackage, Verification
from server.base.services import Services
from server.benchmarks.calibrations import benchmark_of
from server.benchmarks.definitions import read_benchmark_file
from server.verifications.attempts import fenced, owned_attempt
from server.verifications.jobs import trains_packages


def training_grant(session: Session, attempt_id: str, secret: str, *, fence: int) -> TrainingGrant:
    """Packages and limits of an attempt that trains in a box."""
    attempt = _running(session, attempt_id, secret, fence)
    verification = attempt.verification
    policy = _policy(verification, benchmark_of(session, verification))
    trained = (row.package for row in verification.trainings)  # The reference has no package.
    names = dict.fromkeys(each for each in trained if each.startswith(PACKAGE_PREFIX))
    return TrainingGrant(
        packages={name: _content(session, attempt, name) for name in names},
        task_files=dict(policy.files),
        run_seconds=policy.run_limit_seconds,
        prepare_seconds=policy.prepare_seconds,
        max_evaluations=policy.max_evaluations,
        memory_mib=policy.memory_mib,
        threads=policy.threads,
    )


def task_file(
    services: Services, session: Session, attempt_id: str, secret: str, name: str, *, fence: int
) -> bytes:
    """Content of a file of the benchmark's own folder. Raises as `training_grant` does."""
    verification = _running(session, attempt_id, secret, fence).verification
    benchmark = benchmark_of(session, verification)
    sha256 = _policy(verification, benchmark).files.get(name)
    if sha256 is None:
        raise NotFoundError(f"Benchmark {benchmark.benchmark_id} has no file {name[:100]!r}.")
    return read_benchmark_file(services, benchmark, name, sha256)


def _running(session: Session, attempt_id: str, secret: str, fence: int) -> Attempt:
    attempt = owned_attempt(session, attempt_id, secret, fence)
    if attempt.state != "running":
        raise fenced(attempt)
    return attempt


def _policy(verification: Verification, benchmark: Benchmark) -> TrainingPolicy:
    if benchmark.trainings is None or not trains_packages(verification):
        raise ConflictError(f"Verification {verification.id} trains no code submission.")
    return benchmark.trainings


def _content(session: Session, attempt: Attempt, name: str) -> PackageContent:
    verification = attempt.verification
    sides = (verification.submission_id, verification.against_id)
    statement = select(TrainingPackage).where(
        TrainingPackage.package_sha256 == name.removeprefix(PACKAGE_PREFIX)
    )
    found = session.scalars(statement).all()
    own = [each for each in found if each.submission_id in sides]
    package = next(iter(own or found), None)
    if package is None:
        raise NotFoundError(f"There is no code submission {name}.")
    return PackageContent(
        files={each: str(text) for each, text in package.files.items()},
        module=str(package.manifest["module"]),
        environment=package.environment,
        environment_sha256=package.environment_sha256,
        factors=dict.fromkeys(package.manifest.get("factors") or {}, True),
    )
