"""Is an export what it was when it was made? Every hash, every cell, and what hangs together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from rules.chain import HASHED, check_chain
from rules.counts import count_text
from rules.errors import RuleError
from rules.proof import key_id_of
from server.database import moment_text
from server.errors import ContentError
from server.exports.csv_tables import Line, read_csv
from server.exports.logs import LOG_COLUMNS
from server.exports.manifest import (
    EXPORT_FORMAT,
    LOG_LIST,
    MANIFEST,
    Manifest,
    TablePart,
    check_files,
    file_part,
    read_manifest,
)
from server.exports.progress import Progress, silent

LOGS = "logs"
MOST_PROBLEMS = 20
ROWS_BETWEEN_WORDS = 1000


@dataclass(frozen=True)
class Export:
    """A folder that was found to be whole."""

    folder: Path
    manifest: Manifest
    public_key: str

    def lines(self, table: TablePart) -> Iterator[Line]:
        """Every row of a table. Raises RuleError."""
        return read_csv(self.folder / table.file, table.read_columns(), name=table.file)

    def logs(self) -> Iterator[tuple[str, int]]:
        """Hash and bytes of every log."""
        return listed_logs(self.folder)

    def open_log(self, sha256: str) -> Any:
        """A log as a stream."""
        return log_path(self.folder, sha256).open("rb")


def log_path(folder: Path, sha256: str) -> Path:
    """Where a log lies in an export."""
    return folder / LOGS / sha256[:2] / sha256


def listed_logs(folder: Path) -> Iterator[tuple[str, int]]:
    """Hash and bytes of every log that the list of a folder names. Raises RuleError."""
    for line in read_csv(folder / LOG_LIST, LOG_COLUMNS, name=LOG_LIST):
        sha256, size_bytes = line.values
        if not is_sha256(sha256) or size_bytes is None:
            raise RuleError(f"got {str(sha256)[:80]!r}", file=LOG_LIST, line=line.number,
                            expected="a SHA-256 in hex, and bytes")  # fmt: skip
        yield sha256, size_bytes


def is_sha256(text: object) -> bool:
    """Whether a text is 64 small hex digits."""
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")


def verified_export(folder: Path, say: Progress = silent) -> Export:
    """An export of which everything was checked. Raises ContentError that lists what is wrong."""
    signed = read_manifest(folder, wanted=EXPORT_FORMAT)
    export = Export(folder, signed.manifest, signed.public_key)
    refuse(check_files(folder, signed.manifest), folder)
    refuse(check_log_files(folder, signed.manifest, folder / LOGS, say), folder)
    refuse(_check_tables(export, say), folder)
    return export


def refuse(problems: Iterable[RuleError], folder: Path) -> None:
    """Raise ContentError with the first few problems, if there is any."""
    found = list(islice(problems, MOST_PROBLEMS))
    if found:
        lines = "".join(f"\n  {problem}" for problem in found)
        raise ContentError(f"{folder} is not whole, and nothing was changed:{lines}")


def check_log_files(
    folder: Path, manifest: Manifest, place: Path, say: Progress = silent
) -> Iterator[RuleError]:
    """What is wrong with the listed logs: one that is missing from a place, or changed."""
    count = size = 0
    try:
        for sha256, size_bytes in listed_logs(folder):
            count, size = count + 1, size + size_bytes
            problem = _check_log(place / sha256[:2] / sha256, sha256)
            if problem is not None:
                yield problem
            say(f"{count_text(count, 'log')}, {size / 1e6:.0f} MB")
    except RuleError as error:
        yield error
        return
    if (count, size) != (manifest.logs.files, manifest.logs.size_bytes):
        yield RuleError(
            _logs(count, size),
            file=LOG_LIST,
            expected=_logs(manifest.logs.files, manifest.logs.size_bytes),
        )


def _logs(count: int, size_bytes: int) -> str:
    return f"{count_text(count, 'log')}, {count_text(size_bytes, 'byte')}"


def _check_log(path: Path, sha256: str) -> RuleError | None:
    name = f"{LOGS}/{sha256[:2]}/{sha256}"
    try:
        found = file_part(path).sha256
    except OSError as error:
        return RuleError(f"not there ({error.strerror})", file=name, expected="a log")
    if found != sha256:
        return RuleError(f"its content has hash {found}", file=name, expected="what its name says")
    return None


def _check_tables(export: Export, say: Progress) -> Iterator[RuleError]:
    for table in export.manifest.tables:
        try:
            rows = 0
            for rows, _line in enumerate(_checked_lines(export, table), start=1):
                if rows % ROWS_BETWEEN_WORDS == 0:
                    say(f"{table.name}, {count_text(rows, 'row')}")
        except RuleError as error:
            yield error
            continue
        if rows != table.rows:
            found, expected = (count_text(each, "row") for each in (rows, table.rows))
            yield RuleError(found, file=table.file, expected=expected)
    yield from _check_audit(export)
    yield from _check_keys(export)


def _checked_lines(export: Export, table: TablePart) -> Iterator[Line]:
    try:
        return export.lines(table)
    except ValueError as error:
        raise RuleError(str(error), file=MANIFEST, field=table.name, expected="a kind") from error


def _check_audit(export: Export) -> Iterator[RuleError]:
    """The hash chain, and that it ends where the manifest says."""
    head = export.manifest.audit_head
    table = _table(export, "audit_log")
    if table is None:
        return
    try:
        chain = check_chain(_audit_records(export, table))
    except (RuleError, KeyError) as error:
        yield RuleError(str(error), file=table.file)
        return
    for problem in chain.problems:
        yield RuleError(str(problem), file=table.file)
    if chain.head != head:
        yield RuleError(
            f"it ends with {chain.head.id} {chain.head.sha256}",
            file=table.file,
            expected=f"{head.id} {head.sha256}",
        )


def _audit_records(export: Export, table: TablePart) -> Iterator[dict[str, Any]]:
    names = table.read_columns().names
    for line in export.lines(table):
        record = dict(zip(names, line.values, strict=True))
        record["at"] = moment_text(record["at"])
        for name in ("before", "after"):
            record[name] = None if record[name] is None else orjson.loads(record[name])
        yield {name: record[name] for name in (*HASHED, "sha256")}


def _check_keys(export: Export) -> Iterator[RuleError]:
    """Every key has its own id, and the one that signed the manifest is among them."""
    table = _table(export, "signing_keys")
    if table is None:
        yield RuleError("no signing_keys", file=MANIFEST, field="tables", expected="that table")
        return
    names, seen = table.read_columns().names, set()
    for line in export.lines(table):
        key = dict(zip(names, line.values, strict=True))
        seen.add(key["public_key"])
        if key_id_of(bytes.fromhex(key["public_key"])) != key["id"]:
            yield RuleError("not the id of its key", file=table.file, line=line.number, field="id")
    if export.public_key not in seen:
        yield RuleError(
            "signed with another key than those of signing_keys",
            file=MANIFEST,
            field="signature.public_key",
        )


def _table(export: Export, name: str) -> TablePart | None:
    return next((table for table in export.manifest.tables if table.name == name), None)
