"""A submission as it arrives: one JSON and run logs, streamed to the waiting room of the store."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.datastructures import FormData, UploadFile

from finishline.rules.archive.sources import COMMIT
from finishline.rules.logs import check_file_name
from finishline.rules.submissions.claim import CLAIM_LIMIT_BYTES
from server.artifacts import ArtifactStore, Staged
from server.errors import ContentError, TooLargeError
from server.settings import MIB, Settings
from server.submissions.log_files import LogFiles

CLAIM_FILE = "submission.json"
FORM_FIELDS = ("submission", "logs", "benchmark", "division", "archive", "source_commit")


@dataclass(frozen=True)
class Upload:
    """What was sent: claim and logs, staged, the logs by name; and what was said beside them."""

    claim_json: bytes
    claim_file: str
    claim: Staged
    logs: Mapping[str, Staged]
    benchmark_id: str | None
    division: str | None
    archive: bool = False
    source_commit: str | None = None

    @property
    def log_files(self) -> LogFiles:
        """The content of the logs by name."""
        return LogFiles(self.logs, lambda name: self.logs[name].read())

    @property
    def files(self) -> tuple[Staged, ...]:
        """Everything that is to be kept."""
        return (self.claim, *self.logs.values())

    @property
    def sha256(self) -> str:
        """One hash over everything that was sent: the same request has the same hash."""
        digest = hashlib.sha256()
        for part in (self.benchmark_id, self.division):
            digest.update(repr(part).encode() + b"\0")
        if self.archive:
            digest.update(b"archive\0")
        digest.update(self.claim_json + b"\0")
        for name in sorted(self.logs):
            digest.update(f"{name}\0{self.logs[name].sha256}\0".encode())
        return digest.hexdigest()


@contextmanager
def staged_upload(form: FormData, store: ArtifactStore, settings: Settings) -> Iterator[Upload]:
    """Stage the files of a form; whatever was not kept by the end of the block is removed.

    Raises ContentError or TooLargeError naming the part and what was expected.
    """
    staged: dict[str, Staged] = {}
    claim: Staged | None = None
    try:
        _check_parts(form)
        claim_json, claim_file = _claim(form)
        claim = store.stage_bytes(claim_json)
        for part in form.getlist("logs"):
            name, file = _log_part(part)
            if name in staged:
                raise _refuse(f"{name!r} was sent twice", "logs", "each log once", file=name)
            if file.size is not None and file.size > settings.max_log_bytes:
                raise TooLargeError(
                    f"{name} has {file.size / MIB:.1f} MiB; a run log may have at most "
                    f"{settings.max_log_bytes / MIB:.0f} MiB."
                )
            staged[name] = store.stage(file.file)
        yield Upload(
            claim_json=claim_json,
            claim_file=claim_file,
            claim=claim,
            logs=staged,
            benchmark_id=_text(form, "benchmark"),
            division=_text(form, "division"),
            archive=_flag(form, "archive"),
            source_commit=_commit(form),
        )
    finally:
        for each in (*staged.values(), *([claim] if claim else [])):
            store.discard(each)


def _check_parts(form: FormData) -> None:
    for name in form:
        if name not in FORM_FIELDS:
            raise _refuse("unknown part", name, "one of " + ", ".join(FORM_FIELDS))


def _claim(form: FormData) -> tuple[bytes, str]:
    parts = form.getlist("submission")
    if len(parts) != 1:
        raise _refuse(f"{len(parts)} parts of this name", "submission", "one JSON file")
    part = parts[0]
    if isinstance(part, str):
        return part.encode(), CLAIM_FILE
    content = part.file.read(CLAIM_LIMIT_BYTES + 1)
    name = part.filename or CLAIM_FILE
    check_file_name(name)
    return content, name


def _log_part(part: UploadFile | str) -> tuple[str, UploadFile]:
    if isinstance(part, str):
        raise _refuse("a text without a file name", "logs", "a file")
    name = part.filename or ""
    check_file_name(name)
    return name, part


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise _refuse("a file", name, "a text")
    return value


def _flag(form: FormData, name: str) -> bool:
    value = _text(form, name)
    if value not in (None, "true", "false"):
        raise _refuse(f"{value[:60]!r}", name, "true or false")
    return value == "true"


def _commit(form: FormData) -> str | None:
    value = _text(form, "source_commit")
    if value is None:
        return None
    if not COMMIT.fullmatch(value):
        raise _refuse(f"{value[:60]!r}", "source_commit", "the 40 hex digits of a commit")
    if not _flag(form, "archive"):
        raise _refuse("sent without archive=true", "source_commit", "the commit of an archive")
    return value


def _refuse(message: str, field: str, expected: str, *, file: str | None = None) -> ContentError:
    problem = {
        "file": file,
        "line": None,
        "field": field,
        "message": message,
        "expected": expected,
    }
    return ContentError(f"Part {field!r}: {message}; expected {expected}.", problems=[problem])
