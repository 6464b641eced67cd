"""Exports of a server: whether a folder is whole and as it was signed, without any server."""

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from finishline.cli.bundles import Checked, check_signature
from finishline.cli.errors import CliError, ExitCode
from finishline.rules.canonical import read_json
from finishline.rules.errors import RuleError
from finishline.rules.proof.check import Check
from finishline.rules.text import count_text, names_text

MANIFEST, LOG_LIST, LOGS = "manifest.json", "logs.csv", "logs"
FORMAT = "finishline-export-1"


def check_export(folder: Path, keys: Sequence[bytes]) -> Checked:
    """Check an export with the keys to trust: signature, signer, each file, each log, no other.

    Raises CliError for a folder that is none, or that cannot be read.
    """
    try:
        document = read_json((folder / MANIFEST).read_bytes(), file=MANIFEST)
        if document.get("format") != FORMAT:
            raise RuleError(f"got {document.get('format')!r}", file=MANIFEST, expected=FORMAT)
        checks = check_signature(document, keys)
        checks += _contents(folder, document)
    except (OSError, RuleError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CliError(
            f"{folder} is no export: {error}. Expected a folder with a {MANIFEST} as "
            "`python -m server.admin export` makes it; unpack a .tar first.",
            exit_code=ExitCode.REFUSED,
        ) from error
    return Checked(checks, document)


def _contents(folder: Path, document: Mapping[str, Any]) -> Iterator[Check]:
    files = {name: (part["sha256"], part["size_bytes"]) for name, part in document["files"].items()}
    yield _same("files", folder, files)
    text = (folder / LOG_LIST).read_text(encoding="utf-8") if LOG_LIST in files else ""
    logs = {
        f"{LOGS}/{row['sha256'][:2]}/{row['sha256']}": (row["sha256"], int(row["bytes"]))
        for row in csv.DictReader(io.StringIO(text))
    }
    yield _same("logs", folder, logs)
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    there = {str(path.relative_to(folder)) for path in found}
    others = sorted(there - files.keys() - logs.keys() - {MANIFEST})
    why = f"not signed: {names_text(others)}" if others else ""
    compared = "no file but those that are listed"
    yield Check("nothing else", "fail" if others else "pass", compared, why)


def _same(name: str, folder: Path, listed: Mapping[str, tuple[str, int]]) -> Check:
    wrong = [each for each in sorted(listed) if not _is_same(folder, each, *listed[each])]
    compared = f"SHA-256 and bytes of {count_text(len(listed), 'file')}"
    why = f"missing or changed: {names_text(wrong)}" if wrong else ""
    return Check(name, "fail" if wrong else "pass", compared, why)


def _is_same(folder: Path, name: str, sha256: str, size: int) -> bool:
    path = folder / name
    # A signed name leads nowhere else, whatever its signer wrote.
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        return False
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return (found, path.stat().st_size) == (sha256, size)
