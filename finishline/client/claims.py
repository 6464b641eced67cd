"""Build a submission's JSON from a program's values."""

import json
import re
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from finishline.client.errors import Problem, Refused
from finishline.client.files import CLAIM_NAME, Content, Upload, find_submission_files

Source = str | PathLike[str] | Mapping[str, Any]
Logs = Sequence[str | PathLike[str]] | Mapping[str, bytes | str | PathLike[str]]

# Fields allowed beside a submission's JSON, because a DAWNBench entry lacks them.
FORM_FIELDS = ("benchmark", "division")
UNSTATED = "not stated"
DIVISION_LINE = re.compile(rb':::MLLOG .*"key": *"submission_division".*"value": *"(\w+)"')
LOOKED_AT_BYTES = 64 * 1024


def upload_of(source: Source | None, logs: Logs | None, fields: Mapping[str, Any]) -> Upload:
    """Build the upload of a submission given in one of three ways. Raises Refused.

    A path names its JSON or its folder, a mapping is its JSON, and without either the JSON is made
    of `fields`. With a path its logs lie beside it. A JSON that lists no runs lists the `logs`.
    """
    beside = [name for name in fields if name not in FORM_FIELDS and fields[name] is not None]
    if source is not None and beside:
        expected = "only in the submission's JSON"
        raise _refused(", ".join(beside), "given beside a submission's JSON", expected)
    if source is not None and not isinstance(source, Mapping):
        if logs is not None:
            raise _refused(
                "logs", "logs beside a path", "the logs that the submission's JSON lists"
            )
        return find_submission_files(Path(fspath(source))).upload
    named = named_logs(logs or ())
    claim = dict(source) if source is not None else made_claim(fields, named)
    if named:
        claim.setdefault("runs", list(named))
    return Upload(CLAIM_NAME, _json_of(claim), named)


def named_logs(logs: Logs) -> dict[str, Content]:
    """Run logs by the name they are sent under; paths lose their folders. Raises Refused."""
    if isinstance(logs, Mapping):
        return {
            name: content if isinstance(content, bytes) else _existing(Path(content))
            for name, content in logs.items()
        }
    if isinstance(logs, str | bytes | PathLike):
        raise _refused("logs", "one path", "a list of paths, or a table of names and contents")
    paths = [_existing(Path(path)) for path in logs]
    named: dict[str, Content] = {path.name: path for path in paths}
    if len(named) < len(paths):
        raise _refused("logs", "two logs with the same name", "a file name for each log")
    return named


def made_claim(fields: Mapping[str, Any], logs: Mapping[str, Content]) -> dict[str, Any]:
    """The claim of these fields; a division that is not given is that of the first log.

    Raises Refused naming every field that is missing.
    """
    missing = [name for name in ("benchmark", "model", "system") if not fields.get(name)]
    problems = [
        Problem("missing", file=CLAIM_NAME, field=name, expected=f"{name}=...") for name in missing
    ]
    if not logs:
        problems.append(Problem("missing", field="logs", expected="one log for each run"))
    if problems:
        raise Refused("The submission lacks required fields.", problems=problems)
    claim = {name: value for name, value in fields.items() if value is not None}
    claim.setdefault("division", _division_of(next(iter(logs.values()))))
    claim.setdefault("framework", UNSTATED)
    return claim


def _json_of(claim: Mapping[str, Any]) -> bytes:
    """The claim in one order of its fields, so that one claim has one idempotency key."""
    try:
        content = json.dumps(claim, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=2)
        return content.encode()
    except (TypeError, ValueError) as error:
        expected = "texts, finite numbers, lists and tables"
        raise _refused("submission", f"not JSON ({error})", expected) from error


def _division_of(log: Content) -> str:
    """The division an MLLOG names near its beginning; open where it names none."""
    if isinstance(log, bytes):
        head = log[:LOOKED_AT_BYTES]
    else:
        with log.open("rb") as file:
            head = file.read(LOOKED_AT_BYTES)
    found = DIVISION_LINE.search(head)
    return found[1].decode() if found else "open"


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise _refused("logs", f"{path} is not there", "run logs on this machine")
    return path


def _refused(field: str, message: str, expected: str) -> Refused:
    problem = Problem(message, field=field, expected=expected)
    return Refused(f"Invalid submission: {problem}.", problems=[problem])
