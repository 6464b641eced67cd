"""Imports of archives through the console: an uploaded zip, its plan, and a part at a time.

Both files of an import lie in the waiting room of the store for an hour after the last part. A user
has one import: the next replaces it. Each result is handed in under the key that the command gives
it, so that either goes on where the other ended.
"""

import io
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast
from zipfile import ZipFile

from pydantic import BaseModel
from starlette.datastructures import FormData, UploadFile

from finishline.rules.archive.files import Archive, source_name
from finishline.rules.archive.import_plan import Kind, Unsent, of_kind, plan_import
from finishline.rules.archive.parcels import Parcel, key_of
from finishline.rules.archive.records import Found, find_scorable
from finishline.rules.archive.submissions import ResultSet
from finishline.rules.errors import RuleError
from finishline.rules.text import count_text
from server.base.artifacts import ArtifactStore
from server.base.errors import ContentError, NotFoundError, ServerError, problem_of
from server.base.services import Services
from server.benchmarks.queries import importable_benchmarks
from server.people.dependencies import Caller
from server.submissions.accept import Repeated, submit
from server.submissions.drafts import CODE, KEPT_SECONDS
from server.submissions.import_zip import FAULTS, ROOT, commit_in, name_of, open_zip, read_archive
from server.submissions.service import id_under_key
from server.submissions.upload import staged_upload

PART_SECONDS = 2.0
FAILURES = 500  # Statuses from here on are the server's own fault.
NOTHING = (
    "Nothing to import in there. Expected a DAWNBench tree (TASK/train/NAME.json) or packages of "
    "MLPerf (ORG/results/SYSTEM/BENCHMARK/result_0.txt)."
)
NO_ORGANISATION = (
    "The folder around `results` is missing: its name is that of the organisation. Choose that "
    "folder, or the one around it."
)
Problems = list[dict[str, Any]]
State = Literal["imported", "already_there", "refused", "failed"]


class Planned(BaseModel):
    """A result that is to be imported: the form it is sent in, by names of the zip's files."""

    path: str
    key: str
    benchmark: str | None
    fields: dict[str, str]
    claim_name: str
    claim_json: str | None
    claim_file: str | None
    logs: list[str]
    problems: Problems
    notes: list[str]
    is_known: bool = False


class LeftOut(BaseModel):
    """A result that is not imported, and why."""

    path: str
    reason: str
    problems: Problems


class Outcome(BaseModel):
    """The outcome of one result."""

    path: str
    state: State
    submission_id: str | None = None
    reason: str | None = None
    problems: Problems = []


class ArchiveImport(BaseModel):
    """An import: its plan, and the outcomes so far, in the order of the plan."""

    code: str
    kind: Kind
    commit: str | None
    source: str | None
    planned: list[Planned]
    left_out: list[LeftOut]
    outcomes: list[Outcome] = []

    @property
    def is_over(self) -> bool:
        """Whether every planned result has an outcome."""
        return len(self.outcomes) == len(self.planned)


def keep_import(
    services: Services,
    caller: Caller,
    uploaded: BinaryIO,
    *,
    commit: str | None = None,
    published: date | None = None,
) -> ArchiveImport:
    """Keep an uploaded zip in place of the caller's earlier one, and plan its import.

    Raises ContentError or TooLargeError, and keeps nothing then.
    """
    store = services.artifacts
    store.sweep(older_than_seconds=KEPT_SECONDS)
    for earlier in store.incoming.glob(f"import.{caller.user_id}.*"):
        earlier.unlink(missing_ok=True)
    code = secrets.token_urlsafe(16)
    path = _path(store, caller, code, "zip")
    try:
        with path.open("wb") as target:
            shutil.copyfileobj(uploaded, target)
        with open_zip(path) as opened:
            planned = _plan(services, caller, opened, code, commit or commit_in(opened), published)
        _write(store, caller, planned)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return planned


def _plan(
    services: Services,
    caller: Caller,
    opened: ZipFile,
    code: str,
    commit: str | None,
    published: date | None,
) -> ArchiveImport:
    most_bytes = 2 * services.settings.max_request_bytes
    archive = read_archive(opened, most_bytes=most_bytes)
    found = find_scorable(archive)
    kind = _kind_of(found)
    found = of_kind(found, kind)
    if not found.submissions:
        raise ContentError(NOTHING)
    benchmarks = importable_benchmarks(services.benchmarks)
    planned, left_out = [], _compressed(archive)
    with services.database.read_columns() as connection:
        for each in plan_import(found, benchmarks, published=published):
            one = _planned(each, archive)
            if isinstance(one, LeftOut):
                left_out.append(one)
            else:
                one.is_known = id_under_key(connection, caller.user_id, one.key) is not None
                planned.append(one)
    return ArchiveImport(
        code=code,
        kind=kind,
        commit=commit,
        source=None if commit is None else source_name(commit),
        planned=planned,
        left_out=left_out,
    )


def _compressed(archive: Archive) -> list[LeftOut]:
    """The compressed files of an archive, which are not read, told by the first of them."""
    if not archive.compressed:
        return []
    count = count_text(len(archive.compressed), "compressed file")
    reason = f"Not read: {count}, this the first. Unpack those of results."
    return [LeftOut(path=archive.compressed[0], reason=reason, problems=[])]


def _kind_of(found: Found) -> Kind:
    """The kind of an archive: MLPerf's where it has packages. Raises ContentError."""
    sets = [one for one in found.submissions if isinstance(one, ResultSet) and one.in_package]
    if any(one.place[:-3] == (ROOT,) for one in sets):
        raise ContentError(NO_ORGANISATION)
    return Kind.MLPERF if sets else Kind.DAWNBENCH


def _planned(each: Parcel | Unsent, archive: Archive) -> Planned | LeftOut:
    if isinstance(each, Unsent):
        return LeftOut(path=each.path, reason=each.reason, problems=_plain(each.problems))
    try:
        claim_json = each.claim_json(archive)
        key = key_of(each, claim_json, archive)
    except RuleError as error:
        problems = [problem_of(error)]
        return LeftOut(path=each.path, reason="It cannot be read.", problems=problems)
    is_made = isinstance(each.claim, Mapping)
    return Planned(
        path=each.path,
        key=key,
        benchmark=each.claim["benchmark"] if isinstance(each.claim, Mapping) else each.benchmark_id,
        fields=each.fields,
        claim_name=each.claim_name,
        claim_json=claim_json.decode() if is_made else None,
        claim_file=None if isinstance(each.claim, Mapping) else name_of(each.claim),
        logs=[name_of(log) for log in each.logs],
        problems=_plain(each.errors),
        notes=list(each.notes),
    )


def open_import(store: ArtifactStore, caller: Caller, code: str) -> ArchiveImport:
    """An import of the caller. Raises NotFoundError where it is gone."""
    try:
        return ArchiveImport.model_validate_json(_path(store, caller, code, "json").read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(
            "This import is no longer kept: it is for an hour, and until you choose another "
            "archive. Choose it again: what was imported is not stored twice."
        ) from error


def import_part(
    services: Services, caller: Caller, code: str, *, seconds: float = PART_SECONDS
) -> ArchiveImport:
    """Hand in the next results of an import for about so many seconds. Raises NotFoundError."""
    store, until = services.artifacts, time.monotonic() + seconds
    found = open_import(store, caller, code)
    with open_zip(_path(store, caller, code, "zip")) as opened:
        for one in found.planned[len(found.outcomes) :]:
            found.outcomes.append(_send(services, caller, opened, one, found.commit))
            if time.monotonic() > until:
                break
    _path(store, caller, code, "zip").touch()
    _write(store, caller, found)
    return found


def _send(
    services: Services, caller: Caller, opened: ZipFile, one: Planned, commit: str | None
) -> Outcome:
    """Hand in one result as the API does; a refused one stops no other."""
    try:
        with (
            ExitStack() as files,
            staged_upload(
                _form(one, opened, files, commit), services.artifacts, services.settings
            ) as upload,
        ):
            made = submit(services, caller, upload, key=one.key)
    except RuleError as error:
        problems = [problem_of(each) for each in error.problems]
        return Outcome(path=one.path, state="refused", reason=error.message, problems=problems)
    except ServerError as error:
        state: State = "failed" if error.status >= FAILURES else "refused"
        return Outcome(path=one.path, state=state, reason=error.detail, problems=error.problems)
    except FAULTS as error:
        return Outcome(path=one.path, state="refused", reason=f"It cannot be unpacked: {error}.")
    if isinstance(made, Repeated):
        return Outcome(path=one.path, state="already_there", submission_id=made.submission_id)
    return Outcome(path=one.path, state="imported", submission_id=made.submission.id)


def _form(one: Planned, opened: ZipFile, files: ExitStack, commit: str | None) -> FormData:
    """The form in which the command sends the same result."""

    def part(name: str, label: str) -> UploadFile:
        content = files.enter_context(opened.open(name))
        size = opened.getinfo(name).file_size
        return UploadFile(cast(BinaryIO, content), size=size, filename=label)

    if one.claim_file is not None:
        claim = part(one.claim_file, one.claim_name)
    else:
        claim = UploadFile(io.BytesIO((one.claim_json or "").encode()), filename=one.claim_name)
    logs = [("logs", part(name, name.rpartition("/")[2])) for name in one.logs]
    source = [] if commit is None else [("source_commit", commit)]
    return FormData([("submission", claim), *logs, *one.fields.items(), *source])


def _write(store: ArtifactStore, caller: Caller, found: ArchiveImport) -> None:
    """Write the state of an import, so that a reader never sees half of it."""
    path = _path(store, caller, found.code, "json")
    half = path.with_suffix(f".{secrets.token_hex(8)}")
    half.write_text(found.model_dump_json())
    half.replace(path)


def _path(store: ArtifactStore, caller: Caller, code: str, suffix: str) -> Path:
    """Path of a file of an import. Raises FileNotFoundError for a code that none has."""
    if not CODE.fullmatch(code):
        raise FileNotFoundError
    return store.incoming / f"import.{caller.user_id}.{code}.{suffix}"


def _plain(problems: Iterable[Mapping[str, Any]]) -> Problems:
    names = ("file", "line", "field", "message", "expected")
    return [{name: problem[name] for name in names} for problem in problems]
