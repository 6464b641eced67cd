"""Code submissions: check the files, choose their workers, and say who reads their source."""

import difflib
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import SubmissionError
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import line_of
from finishline.rules.trainings.manifest import FILE, PackageError
from finishline.rules.trainings.package import Package, read_package
from finishline.rules.verification.messages import PACKAGE_PREFIX
from server.base.database import find_row
from server.base.errors import ConflictError, ContentError, NotFoundError, problem
from server.base.fleet import Fleet
from server.base.models import Submission, TrainingPackage, User, WorkerRow
from server.base.visibility import Viewer, is_source_public, may_see, sees_source
from server.people.accounts import ORGANISERS
from server.people.callers import Caller
from server.submissions.rows import system_of_worker
from server.submissions.upload import CodeUpload

DIVISION = "open"


def read_code(
    session: Session, caller: Caller, upload: CodeUpload, benchmarks: Mapping[str, Benchmark]
) -> tuple[Claim, TrainingPackage]:
    """Check code, choose its workers, and make its claim and its row.

    Raises SubmissionError with every problem, ContentError if no worker trains it.
    """
    package = check_package(upload.files, benchmarks)
    manifest = package.manifest
    worker = choose_worker(session, caller, manifest.environment, upload.hardware_class)
    claim = Claim(
        benchmark_id=manifest.benchmark,
        division=DIVISION,
        model=manifest.title,
        framework=manifest.environment,
        system=system_of_worker(worker.hardware_class, worker.system),
        run_files=(),
        trained_with="package",
        package=package.sha256,
    )
    texts = {name: content.decode() for name, content in sorted(package.files.items())}
    return claim, TrainingPackage(
        package_sha256=package.sha256,
        program_sha256=package.program_sha256,
        hardware_class=worker.hardware_class,
        environment=manifest.environment,
        environment_sha256=_environments(worker)[manifest.environment],
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


def choose_worker(
    session: Session, caller: Caller, environment: str, hardware_class: str | None
) -> WorkerRow:
    """Choose the last heard worker allowed to train this code. Raises ContentError."""
    workers = list(_workers(session))
    found = [
        worker
        for worker in workers
        if environment in _environments(worker) and hardware_class in (None, worker.hardware_class)
    ]
    if not found:
        raise _no_worker(workers, environment, hardware_class)
    user = session.get_one(User, caller.user_id)
    for worker in found:
        if takes_packages_of(worker.box or {}, user, owner=worker.user_id):
            return worker
    raise ContentError(
        "The workers with this environment have no memory cgroup, so they train the code of "
        "approved users.",
        hint=f"Ask an organiser to approve you (finishline admin user approve {user.name}).",
    )


def offered_hosts(session: Session, caller: Caller) -> dict[str, list[str]]:
    """Return the environments of the workers that train a caller's code, by hardware class."""
    user = session.get_one(User, caller.user_id)
    found: dict[str, set[str]] = {}
    for worker in _workers(session):
        if takes_packages_of(worker.box or {}, user, owner=worker.user_id):
            found.setdefault(worker.hardware_class, set()).update(_environments(worker))
    return {name: sorted(environments) for name, environments in sorted(found.items())}


def takes_packages_of(box: Mapping[str, Any], user: User, *, owner: int | None) -> bool:
    """Return whether a worker's sandbox trains a user's code.

    Without a memory cgroup it trains the code of organisers, approved users and its owner.
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


def _no_worker(
    workers: list[WorkerRow], environment: str, hardware_class: str | None
) -> ContentError:
    offered = {
        f"{name} ({each.hardware_class})" for each in workers for name in _environments(each)
    }
    where = "" if hardware_class is None else f" of hardware class {hardware_class}"
    message = f"no worker{where} has {environment}"
    expected = " or ".join(sorted(offered)) or "a worker that trains code submissions; none does"
    return ContentError(
        f"{FILE}, field environment: {message}; expected {expected}.",
        problems=[problem("environment", message, expected, file=FILE)],
    )


def refuse_known(session: Session, caller: Caller, package: TrainingPackage) -> None:
    """Raise ConflictError for known code, unless its owner sends it for another class."""
    statement = select(TrainingPackage, Submission.user_id).join(
        Submission, Submission.id == TrainingPackage.submission_id
    )
    same = TrainingPackage.package_sha256 == package.package_sha256
    for known, user_id in session.execute(statement.where(same)):
        if user_id == caller.user_id and known.hardware_class != package.hardware_class:
            continue
        if user_id != caller.user_id and not is_source_public(known):
            raise ConflictError("This code was handed in before, and is not published yet.")
        raise ConflictError(
            f"This code was handed in before, as submission {known.submission_id} "
            f"(/submissions/{known.submission_id}).",
            hint=f"More runs of it: finishline verify {known.submission_id} --again.",
        )


def find_package(session: Session, submission_id: str) -> TrainingPackage:
    """Find the package of a submission. Raises NotFoundError."""
    package = session.get(TrainingPackage, submission_id)
    if package is None:
        find_row(session, Submission, submission_id)
        raise NotFoundError(f"Submission {submission_id!r} is no code submission.")
    return package


def read_source(session: Session, viewer: Viewer, submission_id: str, name: str) -> str:
    """Read a file of a package. Raises NotFoundError, also before the code is published."""
    submission = find_row(session, Submission, submission_id)
    package = find_package(session, submission_id)
    if not sees_source(viewer, submission):
        raise NotFoundError(
            "These files are their submitter's and the organisers' until the submission's first "
            "verdict."
        )
    if name not in package.files:
        known = ", ".join(sorted(package.files))
        raise NotFoundError(f"The code submission has no file {name!r}; it has {known}.")
    return str(package.files[name])


def find_source(session: Session, viewer: Viewer, sha256: str) -> TrainingPackage | None:
    """Find the earliest package of this hash with a source readable by a viewer."""
    statement = (
        select(Submission, TrainingPackage)
        .join(TrainingPackage, TrainingPackage.submission_id == Submission.id)
        .where(TrainingPackage.package_sha256 == sha256)
        .order_by(Submission.submitted_at, Submission.id)
    )
    for submission, package in session.execute(statement):
        if may_see(viewer, submission) and sees_source(viewer, submission):
            return package
    return None


def parent_of(session: Session, viewer: Viewer, package: TrainingPackage) -> TrainingPackage | None:
    """Find the parent of a package, if a viewer may read it."""
    based_on = package.manifest["based_on"]
    if based_on is None:
        return None
    return find_source(session, viewer, based_on.removeprefix(PACKAGE_PREFIX))


def require_parent(session: Session, viewer: Viewer, package: TrainingPackage) -> None:
    """Raise ContentError unless the submitter may read the parent of a package.

    A package's hash covers its parent's, which is submitted first: a circle is impossible.
    """
    based_on = package.manifest["based_on"]
    if based_on is None or parent_of(session, viewer, package) is not None:
        return
    message = f"no published code submission {based_on}"
    expected = "sha256: and the SHA-256 of a published code submission, or of one of yours"
    line = line_of(package.files[FILE].encode(), "based_on")
    raise ContentError(
        f"{FILE}, field based_on: {message}; expected {expected}.",
        hint="Hand the parent in first, or remove the line.",
        problems=[problem("based_on", message, expected, file=FILE, line=line)],
    )


LineKind = Literal["place", "same", "removed", "added"]
_KINDS: dict[str, LineKind] = {"@": "place", " ": "same", "-": "removed", "+": "added"}
# Longer sources would keep a server busy, so files beyond as many lines stay uncompared.
MOST_LINES = 4_000


@dataclass(frozen=True)
class FileDifference:
    """A differing file, with its unified diff, or None for a file too long to compare."""

    name: str
    lines: tuple[tuple[LineKind, str], ...] | None


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> list[FileDifference]:
    """List the differing files of two packages, by name. A missing file counts as empty."""
    found, budget = [], MOST_LINES
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, ""), new.get(name, "")
        if name in old and name in new and before == after:
            continue
        budget -= before.count("\n") + after.count("\n")
        lines = None
        if budget >= 0:
            # Only "\n" ends a line. The diff's head is left out.
            diff = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="")
            lines = tuple((_KINDS[line[0]], line) for line in list(diff)[2:])
        found.append(FileDifference(name, lines))
    return found
