"""Code submissions: check the files, choose their workers, and refuse what was handed in before."""

import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import SubmissionError
from finishline.rules.submissions.claim import Claim
from finishline.rules.trainings.manifest import FILE, PackageError
from finishline.rules.trainings.package import Package, read_package
from server.base.errors import ConflictError, ContentError
from server.base.fleet import Fleet
from server.base.models import Submission, TrainingPackage, User, WorkerRow
from server.base.models.visibility import is_source_public
from server.base.services import Services
from server.people.accounts import ORGANISERS
from server.people.dependencies import Caller
from server.submissions.rows import system_of_worker
from server.submissions.upload import CodeUpload

DIVISION = "open"


@dataclass(frozen=True)
class Host:
    """Workers of one hardware class that have an environment: its hash, and one's system."""

    hardware_class: str
    environment_sha256: str
    system: Mapping[str, Any]


def read_code(
    services: Services, caller: Caller, upload: CodeUpload, benchmarks: Mapping[str, Benchmark]
) -> tuple[Claim, TrainingPackage]:
    """Check code and choose its workers. Returns its claim and its row, without a submission.

    Raises SubmissionError with every problem, ContentError where no worker trains it.
    """
    package = check_package(upload.files, benchmarks)
    manifest = package.manifest
    with services.database.read() as session:
        host = choose_host(session, caller, manifest.environment, upload.hardware_class)
    claim = Claim(
        benchmark_id=manifest.benchmark,
        division=DIVISION,
        model=manifest.title,
        framework=manifest.environment,
        system=system_of_worker(host.hardware_class, host.system),
        run_files=(),
        trained_with="package",
        package=package.sha256,
    )
    texts = {name: content.decode() for name, content in sorted(package.files.items())}
    return claim, TrainingPackage(
        package_sha256=package.sha256,
        program_sha256=package.program_sha256,
        hardware_class=host.hardware_class,
        environment=manifest.environment,
        environment_sha256=host.environment_sha256,
        manifest=manifest.model_dump(),
        files=texts,
        size_bytes=package.size_bytes,
        compressed_bytes=len(lzma.compress("".join(texts.values()).encode())),
    )


def check_package(files: Mapping[str, bytes], benchmarks: Mapping[str, Benchmark]) -> Package:
    """Check files as a package. Raises SubmissionError with every problem."""
    offered = {name: each for name, each in benchmarks.items() if each.trainings}
    package, problems = read_package(files, benchmarks=offered)
    if package is not None:
        policy = offered[package.manifest.benchmark].trainings
        if policy is not None and package.size_bytes > policy.max_bytes:
            expected = f"at most {policy.max_bytes} bytes on {package.manifest.benchmark}"
            problems.append(PackageError(f"{package.size_bytes} bytes", expected=expected))
    if package is None or problems:
        raise SubmissionError(problems)
    return package


def choose_host(
    session: Session, caller: Caller, environment: str, hardware_class: str | None
) -> Host:
    """Choose the workers that train a package: those heard last, the organisers' first."""
    found = [worker for worker in _workers(session) if environment in _environments(worker)]
    if hardware_class is not None:
        found = [worker for worker in found if worker.hardware_class == hardware_class]
    if not found:
        raise _no_worker(session, environment, hardware_class)
    user = session.get_one(User, caller.user_id)
    able = [
        worker
        for worker in found
        if takes_packages_of(worker.box or {}, user, owner=worker.user_id)
    ]
    if not able:
        raise ContentError(
            "The workers with this environment have no memory cgroup, so they train the code of "
            "approved users.",
            hint=f"Ask an organiser to approve you (finishline admin user approve {user.name}).",
        )
    first = able[0]
    return Host(first.hardware_class, _environments(first)[environment], first.system)


def offered_hosts(session: Session, caller: Caller) -> dict[str, list[str]]:
    """The environments of the workers that train a caller's packages, by hardware class."""
    user = session.get_one(User, caller.user_id)
    found: dict[str, set[str]] = {}
    for worker in _workers(session):
        if takes_packages_of(worker.box or {}, user, owner=worker.user_id):
            found.setdefault(worker.hardware_class, set()).update(_environments(worker))
    return {name: sorted(environments) for name, environments in sorted(found.items())}


def takes_packages_of(box: Mapping[str, Any], user: User, *, owner: int | None) -> bool:
    """Whether a worker's box trains packages of a user.

    Without a memory cgroup those of organisers, of participants known to one, and of its owner.
    """
    if box.get("entries") == "anyone":
        return True
    if box.get("entries") != "known":
        return False
    return user.id == owner or user.role in ORGANISERS or user.known_at is not None


def _workers(session: Session) -> Iterator[WorkerRow]:
    for worker in Fleet.read(session).recent:
        if (worker.box or {}).get("entries", "off") != "off":
            yield worker


def _environments(worker: WorkerRow) -> dict[str, str]:
    return dict((worker.box or {}).get("environments", {}))


def _no_worker(session: Session, environment: str, hardware_class: str | None) -> ContentError:
    offered = {
        f"{name} ({worker.hardware_class})"
        for worker in _workers(session)
        for name in _environments(worker)
    }
    where = "" if hardware_class is None else f" of hardware class {hardware_class}"
    problem = {
        "file": FILE,
        "line": None,
        "field": "environment",
        "message": f"no worker{where} has {environment}",
        "expected": " or ".join(sorted(offered))
        or "a worker that trains code submissions; none does",
    }
    message = f"{FILE}, field environment: {problem['message']}; expected {problem['expected']}."
    return ContentError(message, problems=[problem])


def refuse_known(session: Session, caller: Caller, package: TrainingPackage) -> None:
    """Raise ConflictError for a package that somebody handed in before.

    Its owner may hand it in again for another hardware class; more runs on one are asked for.
    """
    statement = select(TrainingPackage, Submission.user_id).join(
        Submission, Submission.id == TrainingPackage.submission_id
    )
    same = TrainingPackage.package_sha256 == package.package_sha256
    found = session.execute(statement.where(same)).all()
    for known, user_id in found:
        if user_id == caller.user_id and known.hardware_class != package.hardware_class:
            continue
        if user_id != caller.user_id and not is_source_public(known):
            raise ConflictError("This code was handed in before, and is not published yet.")
        raise ConflictError(
            f"This code was handed in before, as submission {known.submission_id} "
            f"(/submissions/{known.submission_id}).",
            hint=f"More runs of it: finishline verify {package.package_sha256[:12]} --again.",
        )
