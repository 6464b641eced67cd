"""Check a log in which each record covers the hash of the previous record."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError

MOST_PROBLEMS = 100
FIRST_PREVIOUS = "0" * 64
HASHED = (
    "id", "at", "actor_id", "actor", "action", "subject_kind", "subject_id", "reason", "before",
    "after", "previous_sha256",
)  # fmt: skip


@dataclass(frozen=True)
class Head:
    """The last record of a log: noted now, it later proves the records before it."""

    id: int
    sha256: str


# Of a record that names the hashes of others, in which a person's name was replaced.
ERASURE = "user.erase"


@dataclass(frozen=True)
class Chain:
    """Result of checking a log: head, count, faults, and records `redacted` by an erasure."""

    head: Head
    records: int
    problems: tuple[RuleError, ...]
    redacted: int = 0


def record_sha256(record: Mapping[str, Any]) -> str:
    """Hash the RFC 8785 form of a record's other fields with SHA-256."""
    return sha256_of({name: record[name] for name in HASHED})


def check_chain(records: Iterable[Mapping[str, Any]]) -> Chain:
    """Check each record of a whole log, oldest first, against its hash and the record before.

    Ids count up from 1. Compare the head with a noted one, because a cut end is invisible. A
    changed record is whole if a later erasure names its new hash.
    """
    head, count = Head(0, FIRST_PREVIOUS), 0
    problems: list[tuple[int, RuleError]] = []
    other: dict[int, str] = {}
    erasures: dict[int, Mapping[str, str]] = {}
    for count, record in enumerate(records, start=1):
        try:
            _check_place(record, count, head)
            derived = record_sha256(record)
        except RuleError as error:
            problems.append((count, error))
        else:
            if derived != record["sha256"]:
                other[count] = derived
            if record["action"] == ERASURE:
                after = record["after"]
                named = after.get("records") if isinstance(after, Mapping) else None
                erasures[count] = named if isinstance(named, dict) else {}
        head = Head(count, str(record.get("sha256")))
    redacted = _redacted(other, erasures)
    problems += (
        (number, RuleError("it was changed", field=f"record {number}.sha256", expected=derived))
        for number, derived in other.items()
        if number not in redacted
    )
    problems.sort(key=lambda found: found[0])
    found = tuple(problem for _, problem in problems[:MOST_PROBLEMS])
    return Chain(head, count, found, len(redacted))


def _redacted(other: Mapping[int, str], erasures: Mapping[int, Mapping[str, str]]) -> set[int]:
    """Return the records whose changed hash their latest erasure names.

    An erasure counts if it is whole itself, or redacted by a later one.
    """
    latest: dict[str, str] = {}
    for number in sorted(erasures, reverse=True):
        if number not in other or latest.get(str(number)) == other[number]:
            latest = {**erasures[number], **latest}
    return {number for number, derived in other.items() if latest.get(str(number)) == derived}


def has_head(records: Iterable[Mapping[str, Any]], sha256: str) -> bool:
    return sha256 == FIRST_PREVIOUS or any(record.get("sha256") == sha256 for record in records)


def _check_place(record: Mapping[str, Any], number: int, before: Head) -> None:
    place = f"record {number}"
    missing = [name for name in (*HASHED, "sha256") if name not in record]
    if missing:
        raise RuleError("missing", field=f"{place}.{missing[0]}", expected="a complete record")
    if record["id"] != number:
        raise RuleError(f"got {record['id']!r}", field=f"{place}.id", expected=f"{number}")
    if record["previous_sha256"] != before.sha256:
        raise RuleError(
            "a record before it was changed, added or removed",
            field=f"{place}.previous_sha256",
            expected=before.sha256,
        )
