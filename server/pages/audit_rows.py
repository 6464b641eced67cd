"""Rows of the audit log's page: a record each, but one for all records of an import."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from finishline.rules.text import count_text

Record = dict[str, Any]
# Each result of an import has a record of its own in the chain, so that no figure changes later.
IMPORTS = {"archive.import": "imported", "archive.source": "given their source"}
MOST_RECORDS = 5000
LONGEST_GAP = timedelta(minutes=10)


@dataclass(frozen=True)
class AuditRow:
    """A row with its records, the latest first; several are those of one import."""

    records: list[Record]

    @property
    def newest(self) -> Record:
        """The latest record."""
        return self.records[0]

    @property
    def words(self) -> str | None:
        """An import in words: source, commit, results and benchmarks; None for one record."""
        if len(self.records) == 1:
            return None
        counts = Counter(str(_after(one).get("benchmark") or "") for one in self.records)
        named = ", ".join(f"{count:,} of {name}" for name, count in counts.most_common() if name)
        logs = sum(int(_after(one).get("logs") or 0) for one in self.records)
        results = count_text(len(self.records), "result") + (
            f" with {count_text(logs, 'log')}" if logs else ""
        )
        done = IMPORTS[self.newest["action"]]
        return f"{results} {done} from {_source_words(self.newest)}" + (
            f": {named}" if named else ""
        )


def fold_imports(
    records: Iterable[Record], *, most: int, most_records: int = MOST_RECORDS
) -> tuple[list[AuditRow], bool]:
    """The rows of records, the latest first, and whether older records are left.

    Records of one import have one actor, source and commit, and at most ten minutes between them.
    At most `most` rows are made, of at most `most_records`.
    """
    rows: list[AuditRow] = []
    imports: dict[tuple[str, ...], AuditRow] = {}
    for number, record in enumerate(records):
        if number == most_records:
            return rows, True
        key = _import_of(record)
        known = imports.get(key) if key is not None else None
        if known is not None and _at(known.records[-1]) - _at(record) <= LONGEST_GAP:
            known.records.append(record)
            continue
        if len(rows) == most:
            return rows, True
        rows.append(AuditRow([record]))
        if key is not None:
            imports[key] = rows[-1]
    return rows, False


def _import_of(record: Record) -> tuple[str, ...] | None:
    """Actor, action, source and commit of a record of an import."""
    if record["action"] not in IMPORTS:
        return None
    return (record["actor"], record["action"], _source_words(record))


def _source_words(record: Record) -> str:
    after = _after(record)
    source = after.get("archive") or after.get("source")
    if isinstance(source, dict):
        return f"{source['name']} at commit {source['commit'][:12]}"
    commit = after.get("commit")
    return f"commit {commit[:12]}, of no known archive" if commit else "an archive without a commit"


def _after(record: Record) -> dict[str, Any]:
    after: dict[str, Any] = record["after"] or {}
    return after


def _at(record: Record) -> datetime:
    return datetime.fromisoformat(record["at"])
