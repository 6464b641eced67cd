"""Files to send: a submission's JSON and its run logs, or the files of a code submission."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from finishline.client.errors import Problem, Refused, problems_of, refusal
from finishline.rules.benchmarks.definition_tables import LARGEST_PACKAGE_BYTES
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.logs import PACKED_SUFFIXES, UNPACKED, check_file_name
from finishline.rules.text import near_miss, refuse_utf16
from finishline.rules.trainings.manifest import FILE, PackageError
from finishline.rules.trainings.package import MOST_FILES, is_left_out, package_index

if TYPE_CHECKING:
    from finishline.client.transport import Transport

CLAIM_NAME = "submission.json"

Content = Path | bytes
Source = str | PathLike[str] | Mapping[str, Any]
Logs = Sequence[str | PathLike[str]] | Mapping[str, bytes | str | PathLike[str]]


@dataclass(frozen=True)
class Upload:
    """A submission's JSON and its run logs in order, by name: each a file or its bytes."""

    claim_name: str
    claim: Content
    logs: Mapping[str, Content]


def content_of(content: Content) -> bytes:
    return content if isinstance(content, bytes) else content.read_bytes()


def find_submission_files(path: Path) -> Upload:
    """Find the JSON of a submission at a path or in a folder, and its run logs next to it.

    A JSON without a list of runs is a DAWNBench entry with a TSV of its name. Raises Refused.
    """
    claim = path / CLAIM_NAME if path.is_dir() else path
    if not claim.is_file():
        if (path / FILE).is_file():
            expected = "logs; code is checked by `finishline check`"
            raise _refused(f"not there, but {FILE}", expected, file=claim)
        expected = "a submission's JSON, or its folder"
        if path.is_dir():
            expected = f"a folder with a {CLAIM_NAME} and its logs, or one with code and a {FILE}"
        raise _refused("not there", expected, file=claim)
    runs = _listed_runs(claim)
    if runs is None:
        log = claim.with_suffix(".tsv")
        return Upload(claim.name, claim, {log.name: log} if log.is_file() else {})
    return Upload(claim.name, claim, {name: _next_to(claim, name) for name in runs})


def is_code(path: Path) -> bool:
    """Whether a folder is code, by its training.toml. Raises Refused if it has logs as well."""
    has_both = (path / FILE).is_file() and (path / CLAIM_NAME).is_file()
    if has_both:
        raise _refused(f"beside {FILE}", "one of the two: logs or code", file=path / CLAIM_NAME)
    return (path / FILE).is_file()


def upload_of(source: Source, logs: Logs | None) -> Upload:
    """Build the upload of a log submission. Raises Refused.

    A path is its JSON or its folder. A mapping is the JSON. If it lists no runs, `logs` do.
    """
    if not isinstance(source, Mapping):
        if logs is not None:
            expected = "the logs that the submission's JSON lists"
            raise _not_sent("logs", "logs beside a path", expected)
        return find_submission_files(Path(fspath(source)))
    named = _named_logs(logs or ())
    claim = {"runs": list(named), **source} if named else dict(source)
    try:
        # With sorted fields, so that one claim has one idempotency key.
        text = json.dumps(claim, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=2)
        return Upload(CLAIM_NAME, text.encode(), named)
    except (TypeError, ValueError) as error:
        expected = "texts, finite numbers, lists and tables"
        raise _not_sent("submission", f"not JSON ({error})", expected) from error


def idempotency_key(upload: Upload, **form: str | None) -> str:
    """Hash files, names and form with SHA-256: the same files sent twice are one submission."""
    whole = hashlib.sha256()
    for name, content in ((upload.claim_name, upload.claim), *upload.logs.items()):
        whole.update(f"{name}\0".encode())
        whole.update(hashlib.sha256(content_of(content)).digest())
    for name, value in sorted(form.items()):
        whole.update(b"" if value is None else f"\0{name}={value}".encode())
    return whole.hexdigest()


def send_logs(
    transport: "Transport",
    upload: Upload,
    *,
    form: Mapping[str, str | None] = MappingProxyType({}),
    dry_run: bool = False,
) -> tuple[Any, bool]:
    """Send logs, of DAWNBench with a `form`. Returns the submission, and whether it was known."""
    claim = (upload.claim_name, content_of(upload.claim), "application/json")
    logs = upload.logs.items()
    return transport.post_form(
        "/submissions" + ("?dry_run=true" if dry_run else ""),
        files=[
            ("submission", claim),
            *(("logs", (name, content_of(content), "text/plain")) for name, content in logs),
        ],
        fields={name: value for name, value in form.items() if value is not None},
        key=idempotency_key(upload, **form),
    )


def files_of_code(source: Source) -> dict[str, bytes] | None:
    """Return the files of a code submission by name, if it is one. Raises Refused."""
    if isinstance(source, Mapping):
        if FILE not in source:
            return None
        return {
            name: content.encode() if isinstance(content, str) else content
            for name, content in source.items()
        }
    folder = Path(fspath(source))
    if not is_code(folder):
        return None
    files, problems = read_folder(folder)
    if problems:
        raise Refused(
            f"{folder} has files that no code submission has.", problems=problems_of(problems)
        )
    return files


def send_code(
    transport: "Transport",
    files: Mapping[str, bytes],
    *,
    hardware_class: str | None = None,
    dry_run: bool = False,
) -> tuple[Any, bool]:
    """Send code. Returns its submission, and whether the files were sent for this class before."""
    sha256 = sha256_of(package_index(files))
    return transport.post_form(
        "/submissions" + ("?dry_run=true" if dry_run else ""),
        files=[("files", (name, content, "text/plain")) for name, content in files.items()],
        fields={} if hardware_class is None else {"hardware_class": hardware_class},
        key=hashlib.sha256(f"{sha256} {hardware_class or ''}".encode()).hexdigest(),
    )


def read_folder(
    folder: Path, *, most_files: int = MOST_FILES, most_bytes: int = LARGEST_PACKAGE_BYTES
) -> tuple[dict[str, bytes], list[RuleError]]:
    """Read files by relative name. Reports links and unreadable files. Raises OSError."""
    files: dict[str, bytes] = {}
    problems: list[RuleError] = []
    for name, path in _walk(folder, folder):
        if len(files) > 2 * most_files:
            break  # Too many is reported once, so stop reading.
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
            problems.append(PackageError(kind, file=name, expected="a regular file"))
        elif status.st_size > most_bytes:
            expected = f"at most {most_bytes} bytes"
            problems.append(PackageError(f"{status.st_size} bytes", file=name, expected=expected))
        else:
            files[name] = path.read_bytes()
    return files, problems


def _walk(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if is_left_out(entry.name):
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(path, root)
            else:
                yield path.relative_to(root).as_posix(), path


def _named_logs(logs: Logs) -> dict[str, Content]:
    if isinstance(logs, str | bytes | PathLike):
        expected = "a list of paths, or a table of names and contents"
        raise _not_sent("logs", "one path", expected)
    if isinstance(logs, Mapping):
        named: dict[str, Content] = {
            name: content if isinstance(content, bytes) else Path(content)
            for name, content in logs.items()
        }
    else:
        named = {Path(path).name: Path(path) for path in logs}
        if len(named) < len(logs):
            raise _not_sent("logs", "two logs with the same name", "a file name for each log")
    for log in named.values():
        if isinstance(log, Path) and not log.is_file():
            raise _not_sent("logs", f"{log} is not there", "run logs on this machine")
    return named


def _listed_runs(claim: Path) -> list[str] | None:
    try:
        content = claim.read_bytes()
        refuse_utf16(content, file=str(claim))
        document = json.loads(content.decode("utf-8-sig"))
    except RuleError as error:
        raise refusal(error) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(f"not JSON ({error})", "a JSON object", file=claim) from error
    if not isinstance(document, dict):
        raise _refused("not a JSON object", "a JSON object", file=claim)
    runs = document.get("runs")
    if runs is None and ("author" in document or "benchmark" not in document):
        return None
    if not isinstance(runs, list) or not all(isinstance(name, str) for name in runs):
        message = "missing" if runs is None else "not a list of file names"
        written = near_miss("runs", document) if runs is None else None
        if written is not None:
            message += f" (did you mean 'runs' where it says {written!r}?)"
        raise _refused(message, "a list of the names of its run logs", file=claim, field="runs")
    return runs


def _next_to(claim: Path, name: str) -> Path:
    """Find a log in or below the folder of the claim, and only there."""
    try:
        check_file_name(name)
    except RuleError as error:
        raise refusal(error) from error
    log = claim.parent / name
    if not log.is_file():
        for packed in (f"{log.name}{suffix}" for suffix in PACKED_SUFFIXES):
            if log.with_name(packed).is_file():
                raise _refused(f"not there, but {packed}", UNPACKED, file=log)
        raise _refused("not there", f"every run log listed in {claim.name}", file=log)
    return log


def _refused(message: str, expected: str, *, file: Path, field: str | None = None) -> Refused:
    problem = Problem(message, file=str(file), field=field, expected=expected)
    return Refused(f"{problem}.", problems=[problem])


def _not_sent(field: str, message: str, expected: str) -> Refused:
    problem = Problem(message, field=field, expected=expected)
    return Refused(f"Invalid submission: {problem}.", problems=[problem])
