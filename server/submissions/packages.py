"""Accept a training package as an entry: check it, find workers for it, store it, ask for its runs.

The submission has no logs: its runs are those that a worker makes in a box.
"""

import lzma
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import canonical
from finishline.rules.errors import SubmissionError
from finishline.rules.submissions.claim import System
from finishline.rules.trainings.manifest import FILE, PackageError
from finishline.rules.trainings.package import Package, package_index, read_package
from server.base.artifacts import Staged
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.errors import ConflictError, ContentError
from server.base.events import SubmissionAccepted, VerificationWanted, emit
from server.base.models import Submission, TrainingPackage, User, WorkerRow
from server.base.models.visibility import is_source_public
from server.base.services import Services
from server.base.standing import claim_of
from server.base.viewer import Viewer
from server.benchmarks.phases import FrozenOtherwiseError, admit
from server.benchmarks.queries import definition, keep_definition
from server.people.accounts import ORGANISERS
from server.people.dependencies import Caller
from server.submissions.accept import Repeated, check_idempotency_key, find_earlier
from server.submissions.duplicates import configuration_sha256, mark_duplicate
from server.submissions.quotas import require_room_for_submission, reserve_replay
from server.submissions.rows import new_id, no_result, stored_result, table_of
from server.submissions.sources import require_parent

T = TypeVar("T")
# A worker that was not heard for so long may not come back: nothing is accepted to wait for it.
RECENTLY = timedelta(days=7)
DIVISION = "open"


@dataclass(frozen=True)
class Host:
    """Workers of one hardware class that have an environment: its hash, and one's system."""

    hardware_class: str
    environment_sha256: str
    system: Mapping[str, Any]


def hand_in(
    services: Services,
    caller: Caller,
    files: Mapping[str, bytes],
    *,
    hardware_class: str | None = None,
    key: str | None = None,
) -> str | Repeated:
    """Store a package as an entry and ask for its measurement; returns the submission's id."""
    check_idempotency_key(key)
    package = check_package(services, files)
    earlier = find_earlier(services, caller, key, request_sha256=package.sha256)
    if earlier is not None:
        return earlier
    index = services.artifacts.stage_bytes(canonical(package_index(package.files)))
    settled = services.artifacts.settle([index])
    try:
        submission_id = _store(services, caller, package, settled, hardware_class, key=key)
    except (IntegrityError, ConflictError):
        # Two requests under one key came at the same time; the other one won.
        earlier = find_earlier(services, caller, key, request_sha256=package.sha256)
        if earlier is None:
            raise
        return earlier
    finally:
        services.artifacts.discard(index)
    return submission_id


def check_package(services: Services, files: Mapping[str, bytes]) -> Package:
    """Check files as a package. Raises SubmissionError with every problem."""
    offered = {name: each for name, each in services.benchmarks.items() if each.trainings}
    package, problems = read_package(files, benchmarks=offered)
    if package is not None:
        policy = offered[package.manifest.benchmark].trainings
        if policy is not None and package.size_bytes > policy.max_bytes:
            expected = f"at most {policy.max_bytes} bytes on {package.manifest.benchmark}"
            problems.append(PackageError(f"{package.size_bytes} bytes", expected=expected))
    if package is None or problems:
        raise SubmissionError(problems)
    return package


def _store(
    services: Services,
    caller: Caller,
    package: Package,
    settled: Collection[Staged],
    hardware_class: str | None,
    *,
    key: str | None,
) -> str:
    """Store a package, and its index last: a stored submission always has its file."""

    def insert(session: Session, benchmark: Benchmark) -> str:
        stored = _insert(services, session, caller, package, benchmark, hardware_class, key)
        services.artifacts.keep(settled)
        return stored

    return under_ruling(services, package, services.database.write, insert)


def under_ruling(
    services: Services,
    package: Package,
    open_session: Callable[[], AbstractContextManager[Session]],
    use: Callable[[Session, Benchmark], T],
) -> T:
    """Result of `use` in a session, with the rules that are in force for a package."""
    try:
        with open_session() as session:
            return use(session, services.benchmarks[package.manifest.benchmark])
    except FrozenOtherwiseError as error:
        # Another server froze the rules since this one last polled: the frozen rules apply.
        with open_session() as session:
            return use(session, definition(session, error.sha256))


def _insert(
    services: Services,
    session: Session,
    caller: Caller,
    package: Package,
    benchmark: Benchmark,
    hardware_class: str | None,
    key: str | None,
) -> str:
    submission = new_entry(services, session, caller, package, benchmark, hardware_class, key=key)
    settings = services.settings
    keep_definition(session, benchmark, settings.benchmarks_dir)
    session.add(submission)
    session.flush()
    raise_board_version(session, benchmark.benchmark_id, submission_id=submission.id)
    emit(session, SubmissionAccepted(submission))
    if mark_duplicate(session, submission):
        return submission.id
    reserved = None
    if not caller.is_organiser:
        reserved = reserve_replay(
            session, settings, submission, user_id=caller.user_id, kind="entry"
        )
    emit(session, VerificationWanted(submission, caller.user_id, reserved))
    return submission.id


def new_entry(
    services: Services,
    session: Session,
    caller: Caller,
    package: Package,
    benchmark: Benchmark,
    hardware_class: str | None,
    *,
    key: str | None = None,
) -> Submission:
    """Admit a package and return its submission with it, outside the session."""
    viewer = Viewer(user_ids=(caller.user_id,), sees_all=caller.is_organiser)
    require_parent(session, viewer, package)
    host = choose_host(session, caller, package.manifest.environment, hardware_class)
    _refuse_known(session, caller, package, host.hardware_class)
    settings = services.settings
    if not caller.is_organiser:
        require_room_for_submission(session, settings, user_id=caller.user_id)
    admission = admit(session, benchmark, settings.benchmarks_dir, archive=False)
    row = _submission(caller, package, benchmark, host, key=key)
    submission = Submission(**row, embargoed=admission.embargoed)
    submission.package = _package_row(package, host)
    key_of_it = configuration_sha256(benchmark, claim_of(submission), submission.package)
    submission.configuration_sha256 = key_of_it
    return submission


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
            "The workers with this environment have no memory cgroup, so they train packages of "
            "participants whom an organiser knows. Ask an organiser to approve you "
            f"(finishline admin user approve {user.name})."
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
    statement = (
        select(WorkerRow)
        .where(
            WorkerRow.confirmed_at.is_not(None),
            WorkerRow.last_seen_at >= utc_now() - RECENTLY,
        )
        .order_by(WorkerRow.last_seen_at.desc())
    )
    for worker in session.scalars(statement):
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
        "expected": " or ".join(sorted(offered)) or "a worker that trains packages; none does",
    }
    message = f"{FILE}, field environment: {problem['message']}; expected {problem['expected']}."
    return ContentError(message, problems=[problem])


def _refuse_known(session: Session, caller: Caller, package: Package, hardware_class: str) -> None:
    """Raise ConflictError for a package that somebody handed in before.

    Its owner may hand it in again for another hardware class; more runs on one are asked for.
    """
    statement = select(TrainingPackage, Submission.user_id).join(
        Submission, Submission.id == TrainingPackage.submission_id
    )
    found = session.execute(statement.where(TrainingPackage.package_sha256 == package.sha256)).all()
    for known, user_id in found:
        if user_id == caller.user_id and known.hardware_class != hardware_class:
            continue
        if user_id != caller.user_id and not is_source_public(known):
            raise ConflictError("This package was handed in before, and is not published yet.")
        raise ConflictError(
            f"This package was handed in before, as submission {known.submission_id} "
            f"(/submissions/{known.submission_id}). More runs of it: finishline training run-again "
            f"{package.sha256[:12]}."
        )


def _submission(
    caller: Caller,
    package: Package,
    benchmark: Benchmark,
    host: Host,
    *,
    key: str | None,
) -> dict[str, Any]:
    manifest, system = package.manifest, host.system
    result = no_result(benchmark)
    return {
        "id": new_id(),
        "user_id": caller.user_id,
        "benchmark_id": benchmark.benchmark_id,
        "benchmark_sha256": benchmark.sha256,
        "division": DIVISION,
        "model": manifest.title,
        "framework": manifest.environment,
        "system": table_of(
            System(
                name=host.hardware_class,
                hardware_class=host.hardware_class,
                processor=system["processor"],
                processor_count=system["processor_count"],
                memory_gib=system["memory_gib"],
                accelerator=system["accelerator"],
                accelerator_count=system["accelerator_count"],
            )
        ),
        "hyperparameters": {},
        "claim_sha256": package.sha256,
        "status": "claimed",
        "kind": "train",
        "precision": None,
        "trained_with": "package",
        "eligible": result.eligible,
        "result": stored_result(result),
        "idempotency_key": key,
        "request_sha256": package.sha256,
        "submitted_at": utc_now(),
        "evidence": "claimed",
        "check_word": "none",
    }


def _package_row(package: Package, host: Host) -> TrainingPackage:
    texts = {name: content.decode() for name, content in sorted(package.files.items())}
    return TrainingPackage(
        package_sha256=package.sha256,
        program_sha256=package.program_sha256,
        hardware_class=host.hardware_class,
        environment=package.manifest.environment,
        environment_sha256=host.environment_sha256,
        manifest=package.manifest.model_dump(),
        files=texts,
        size_bytes=package.size_bytes,
        compressed_bytes=len(lzma.compress("".join(texts.values()).encode())),
    )
