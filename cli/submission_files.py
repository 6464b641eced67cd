"""The files of a submission on this machine: one JSON and its run logs."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.errors import CliError, ExitCode, Problem, refusal
from rules.errors import RuleError
from rules.logs import check_file_name

CLAIM_NAME = "submission.json"


@dataclass(frozen=True)
class SubmissionFiles:
    """One submission: the JSON that describes it, and its run logs in order, by name."""

    claim: Path
    logs: Mapping[str, Path]


def find_submission_files(path: Path) -> SubmissionFiles:
    """The files of the submission at `path`: its JSON, or a folder with a submission.json.

    The run logs are those the JSON lists, beside it; a JSON that lists none is a DAWNBench entry
    and its log is the TSV of the same name. Raises CliError for what is missing.
    """
    claim = path / CLAIM_NAME if path.is_dir() else path
    if not claim.is_file():
        raise _refused(f"{claim} is not there.", claim, "a submission's JSON, or its folder")
    runs = _listed_runs(claim)
    if runs is None:
        log = claim.with_suffix(".tsv")
        return SubmissionFiles(claim, {log.name: log} if log.is_file() else {})
    return SubmissionFiles(claim, {name: _beside(claim, name) for name in runs})


def _listed_runs(claim: Path) -> list[str] | None:
    try:
        document = json.loads(claim.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(f"{claim} is not JSON ({error}).", claim, "a JSON object") from error
    if not isinstance(document, dict):
        raise _refused(f"{claim} is no JSON object.", claim, "a JSON object")
    runs = document.get("runs")
    if runs is None and ("author" in document or "benchmark" not in document):
        return None
    if not isinstance(runs, list) or not all(isinstance(name, str) for name in runs):
        raise _refused(
            f"{claim} lists no run logs.", claim, "a list of file names in the field runs"
        )
    return runs


def _beside(claim: Path, name: str) -> Path:
    """The file of that name in or below the folder of the claim, and nowhere else."""
    try:
        check_file_name(name)
    except RuleError as error:
        raise refusal(error) from error
    log = claim.parent / name
    if not log.is_file():
        raise _refused(f"{log} is not there.", claim, "every run log that the JSON lists")
    return log


def idempotency_key(files: SubmissionFiles, **form: str | None) -> str:
    """SHA-256 over the names and contents of the files and over the form's other fields.

    The same files sent twice are one submission.
    """
    whole = hashlib.sha256()
    for name, path in ((files.claim.name, files.claim), *files.logs.items()):
        whole.update(f"{name}\0".encode())
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    for name, value in sorted(form.items()):
        whole.update(f"\0{name}={value or ''}".encode())
    return whole.hexdigest()


def open_parts(files: SubmissionFiles, opened: ExitStack) -> list[tuple[str, tuple[str, Any, str]]]:
    """The files as parts of a multipart form; `opened` closes them."""
    parts = [("submission", files.claim.name, files.claim, "application/json")]
    parts += [("logs", name, path, "text/plain") for name, path in files.logs.items()]
    return [
        (field, (name, opened.enter_context(path.open("rb")), kind))
        for field, name, path, kind in parts
    ]


def _refused(sentence: str, claim: Path, expected: str) -> CliError:
    return CliError(
        f"{sentence} Name a submission's JSON or its folder.",
        exit_code=ExitCode.REFUSED,
        problems=[Problem(message=sentence, file=claim.name, expected=expected)],
    )
