"""Files of a submission: staged, and looked up by name for scoring."""

import hashlib
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, ClassVar

from starlette.datastructures import FormData

from finishline.rules.archive.files import COMMIT
from finishline.rules.benchmarks.definition_tables import LARGEST_PACKAGE_BYTES
from finishline.rules.canonical import canonical
from finishline.rules.logs import check_file_name
from finishline.rules.submissions.claim import CLAIM_LIMIT_BYTES
from finishline.rules.trainings.manifest import FILE
from finishline.rules.trainings.package import package_index
from server.base.artifacts import Staged
from server.base.database import Services
from server.base.errors import ContentError, HttpError, problem
from server.base.forms import SUBMISSION, read_files, read_text, refuse_part
from server.base.settings import MIB, Settings


class LogFiles(UserDict[str, Any]):
    """Run logs by name, made of functions that read them, because together they may be large."""

    def __getitem__(self, name: str) -> bytes:
        read: Callable[[], bytes] = self.data[name]
        return read()


CLAIM_FILE = "submission.json"
LOG_FIELDS = ("submission", "logs", "benchmark", "division", "archive", "source_commit")
CODE_FIELDS = ("files", "hardware_class")


@dataclass(frozen=True)
class LogUpload:
    """Upload of logs: the staged claim, the staged logs by name, and the form's other fields."""

    claim_json: bytes
    claim_file: str
    document: Staged
    logs: Mapping[str, Staged]
    benchmark_id: str | None
    division: str | None
    archive: bool = False
    source_commit: str | None = None

    @property
    def log_files(self) -> LogFiles:
        """Content of the logs by name."""
        return LogFiles({name: log.path.read_bytes for name, log in self.logs.items()})

    @property
    def staged(self) -> tuple[Staged, ...]:
        """All files to store."""
        return (self.document, *self.logs.values())

    @property
    def sha256(self) -> str:
        """Hash of the whole request."""
        digest = hashlib.sha256()
        for part in (self.benchmark_id, self.division):
            digest.update(repr(part).encode() + b"\0")
        if self.archive:
            digest.update(b"archive\0")
        digest.update(self.claim_json + b"\0")
        for name in sorted(self.logs):
            digest.update(f"{name}\0{self.logs[name].sha256}\0".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class CodeUpload:
    """Upload of code: its files by name, their staged index, and the class to train them."""

    files: Mapping[str, bytes]
    document: Staged
    hardware_class: str | None
    archive: ClassVar[bool] = False
    source_commit: ClassVar[None] = None

    @property
    def staged(self) -> tuple[Staged, ...]:
        """The file to store."""
        return (self.document,)

    @property
    def sha256(self) -> str:
        """Hash of the files, whichever class trains them."""
        return self.document.sha256


Upload = LogUpload | CodeUpload


@contextmanager
def read_upload(services: Services, form: FormData) -> Iterator[Upload]:
    """Read and stage a form of either kind. The end of the block removes unkept files."""
    staged: list[Staged] = []

    def stage(source: BinaryIO) -> Staged:
        staged.append(services.artifacts.stage(source))
        return staged[-1]

    try:
        if is_code(form):
            yield _read_code(form, stage)
        else:
            yield _read_logs(form, stage, services.settings)
    finally:
        for each in staged:
            services.artifacts.discard(each)


def is_code(form: FormData) -> bool:
    """Return whether a form is a code submission. Raises ContentError unless it is of one kind."""
    has_code = any(getattr(part, "filename", None) == FILE for part in form.getlist("files"))
    if has_code is ("submission" in form):
        hint = "`finishline submit PATH` finds out which kind PATH is, and names the parts."
        got = f"got both {FILE} and 'submission'" if has_code else "got neither"
        problems = [problem("submission", got, SUBMISSION)]
        raise ContentError(f"{SUBMISSION}; {got}.", hint=hint, problems=problems)
    return has_code


def _read_code(form: FormData, stage: Callable[[BinaryIO], Staged]) -> CodeUpload:
    hardware_class = read_text(form, "hardware_class", expected="the name of a hardware class")
    files = read_files(
        form, fields=CODE_FIELDS, most_bytes=LARGEST_PACKAGE_BYTES, expected=f"{FILE} among them"
    )
    index = stage(BytesIO(canonical(package_index(files))))
    return CodeUpload(files, index, hardware_class)


def _read_logs(
    form: FormData, stage: Callable[[BinaryIO], Staged], settings: Settings
) -> LogUpload:
    logs: dict[str, Staged] = {}
    for name in form:
        if name not in LOG_FIELDS:
            raise refuse_part("unknown part", name, "one of " + ", ".join(LOG_FIELDS))
    if len(form.getlist("logs")) > settings.max_log_files:
        raise HttpError(413, f"A submission may have at most {settings.max_log_files} logs.")
    claim_json, claim_file = _claim(form)
    claim = stage(BytesIO(claim_json))
    for part in form.getlist("logs"):
        if isinstance(part, str):
            raise refuse_part("a text without a file name", "logs", "a file")
        name = part.filename or ""
        check_file_name(name)
        if name in logs:
            raise refuse_part(f"{name!r} was sent twice", "logs", "each log once", file=name)
        if part.size is not None and part.size > settings.max_log_bytes:
            raise HttpError(
                413,
                f"{name} has {part.size / MIB:.1f} MiB; a run log may have at most "
                f"{settings.max_log_bytes / MIB:.0f} MiB.",
            )
        logs[name] = stage(part.file)
    return LogUpload(
        claim_json=claim_json,
        claim_file=claim_file,
        document=claim,
        logs=logs,
        benchmark_id=read_text(form, "benchmark", expected="a text"),
        division=read_text(form, "division", expected="a text"),
        archive=_flag(form, "archive"),
        source_commit=_commit(form),
    )


def _claim(form: FormData) -> tuple[bytes, str]:
    parts = form.getlist("submission")
    if len(parts) != 1:
        raise refuse_part(f"{len(parts)} parts of this name", "submission", "one JSON file")
    part = parts[0]
    if isinstance(part, str):
        return part.encode(), CLAIM_FILE
    content = part.file.read(CLAIM_LIMIT_BYTES + 1)
    name = part.filename or CLAIM_FILE
    check_file_name(name)
    return content, name


def _flag(form: FormData, name: str) -> bool:
    value = read_text(form, name, expected="a text")
    if value not in (None, "true", "false"):
        raise refuse_part(f"{value[:60]!r}", name, "true or false")
    return value == "true"


def _commit(form: FormData) -> str | None:
    value = read_text(form, "source_commit", expected="a text")
    if value is None:
        return None
    if not COMMIT.fullmatch(value):
        raise refuse_part(f"{value[:60]!r}", "source_commit", "the 40 hex digits of a commit")
    if not _flag(form, "archive"):
        raise refuse_part("given without archive=true", "source_commit", "the commit of an archive")
    return value
