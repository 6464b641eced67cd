"""Difference of two packages, file by file: lines that one has and the other lacks."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

LineKind = Literal["place", "same", "removed", "added"]
_KINDS: dict[str, LineKind] = {"@": "place", " ": "same", "-": "removed", "+": "added"}
# Longer sources would keep a server busy: beyond as many lines nothing is compared.
MOST_LINES = 4_000


@dataclass(frozen=True)
class FileDifference:
    """A file that differs, with its lines as a unified diff; None of one too long to compare."""

    name: str
    lines: tuple[tuple[LineKind, str], ...] | None


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> list[FileDifference]:
    """Files of two packages that differ, by name; one that is not there counts as empty."""
    found, budget = [], MOST_LINES
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, ""), new.get(name, "")
        if name in old and name in new and before == after:
            continue
        budget -= before.count("\n") + after.count("\n")
        lines = tuple(_lines(before, after)) if budget >= 0 else None
        found.append(FileDifference(name, lines))
    return found


def _lines(before: str, after: str) -> Iterator[tuple[LineKind, str]]:
    """Lines of a unified diff without its head, each with its sign; `\\n` alone ends a line."""
    diff = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="")
    for line in list(diff)[2:]:
        yield _KINDS[line[0]], line
