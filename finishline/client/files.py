"""The files of a submission on this machine: one JSON and its run logs."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from finishline.client.errors import Problem, Refused
from finishline.rules.errors import RuleError
from finishline.rules.logs import PACKED_SUFFIXES, UNPACKED, check_file_name
from finishline.rules.text import count_text, near_miss, refuse_utf16
from finishline.rules.trainings.manifest import FILE

if TYPE_CHECKING:
    from finishline.client.transport import FilePart

CLAIM_NAME = "submission.json"

Content = Path | bytes


@dataclass(frozen=True)
class SubmissionFiles:
    """One submission: the JSON that describes it, and its run logs in order, by name."""

    claim: Path
    logs: Mapping[str, Path]

    @property
    def upload(self) -> "Upload":
        """The upload made of these files."""
        return Upload(self.claim.name, self.claim, self.logs)


@dataclass(frozen=True)
class Upload:
    """Upload: a submission's JSON and its run logs by name, each a file or its bytes."""

    claim_name: str
    claim: Content
    logs: Mapping[str, Content]


def find_submission_files(path: Path) -> SubmissionFiles:
    """The files of the submission at `path`: its JSON, or a folder with a submission.json.

    The run logs are those the JSON lists, beside it; a JSON that lists none is a DAWNBench entry
    and its log is the TSV of the same name. Raises Refused if a file is missing.
    """
    claim = path / CLAIM_NAME if path.is_dir() else path
    if not claim.is_file():
        if (path / FILE).is_file():
            raise _refused(
                claim,
                f"not there, but {FILE} of a training package",
                "run logs; check and send a package with `finishline training`",
            )
        raise _refused(claim, "not there", "a submission's JSON, or its folder")
    runs = _listed_runs(claim)
    if runs is None:
        log = claim.with_suffix(".tsv")
        return SubmissionFiles(claim, {log.name: log} if log.is_file() else {})
    return SubmissionFiles(claim, {name: _beside(claim, name) for name in runs})


def idempotency_key(upload: Upload, **form: str | None) -> str:
    """SHA-256 over the names and contents of the files and over the form's other fields.

    The same files sent twice are one submission.
    """
    whole = hashlib.sha256()
    for name, content in ((upload.claim_name, upload.claim), *upload.logs.items()):
        whole.update(f"{name}\0".encode())
        whole.update(_sha256(content))
    for name, value in sorted(form.items()):
        whole.update(f"\0{name}={value or ''}".encode())
    return whole.hexdigest()


def open_parts(upload: Upload, opened: ExitStack) -> "list[FilePart]":
    """The files as parts of a multipart form; `opened` closes them."""
    parts: list[FilePart] = []
    listed = [("submission", upload.claim_name, upload.claim, "application/json")]
    listed += [("logs", name, content, "text/plain") for name, content in upload.logs.items()]
    for field, name, content, kind in listed:
        body = content if isinstance(content, bytes) else opened.enter_context(content.open("rb"))
        parts.append((field, (name, body, kind)))
    return parts


def _sha256(content: Content) -> bytes:
    if isinstance(content, bytes):
        return hashlib.sha256(content).digest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _listed_runs(claim: Path) -> list[str] | None:
    try:
        content = claim.read_bytes()
        refuse_utf16(content, file=str(claim))
        document = json.loads(content.decode("utf-8-sig"))
    except RuleError as error:
        raise refusal(error) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(claim, f"not JSON ({error})", "a JSON object") from error
    if not isinstance(document, dict):
        raise _refused(claim, "not a JSON object", "a JSON object")
    runs = document.get("runs")
    if runs is None and ("author" in document or "benchmark" not in document):
        return None
    if not isinstance(runs, list) or not all(isinstance(name, str) for name in runs):
        message = "missing" if runs is None else "not a list of file names"
        written = near_miss("runs", document) if runs is None else None
        if written is not None:
            message += f" (did you mean 'runs' where it says {written!r}?)"
        raise _refused(claim, message, "a list of the names of its run logs", field="runs")
    return runs


def _beside(claim: Path, name: str) -> Path:
    """The file of that name in or below the folder of the claim, and nowhere else."""
    try:
        check_file_name(name)
    except RuleError as error:
        raise refusal(error) from error
    log = claim.parent / name
    if not log.is_file():
        for packed in (f"{log.name}{suffix}" for suffix in PACKED_SUFFIXES):
            if log.with_name(packed).is_file():
                raise _refused(log, f"not there, but {packed}", UNPACKED)
        raise _refused(log, "not there", f"every run log listed in {claim.name}")
    return log


def refusal(error: RuleError) -> Refused:
    """Build the exception for an input that breaks one or several rules."""
    problems = problems_of(error.problems)
    count = count_text(len(problems), "problem")
    return Refused(
        f"The input breaks the rules: {count}. Correct it and try again.",
        problems=problems,
    )


def problems_of(errors: Iterable[RuleError]) -> list[Problem]:
    """Convert rule errors into problems for display."""
    return [
        Problem(each.message, each.file, each.line, each.field, each.expected) for each in errors
    ]


def _refused(path: Path, message: str, expected: str, *, field: str | None = None) -> Refused:
    problem = Problem(message, file=str(path), field=field, expected=expected)
    return Refused(f"{problem}.", problems=[problem])
