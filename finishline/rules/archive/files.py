"""Files of an archive, their copies and problems, and the sources of published archives."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partialmethod
from pathlib import Path
from typing import Any, Literal

from finishline.rules.errors import LogFormatError, RuleError
from finishline.rules.scoring.violations import Violation
from finishline.rules.text import parse_toml

Place = tuple[str, ...]
# Names of files that can belong to a submission, and their greatest depth in a tree.
SUFFIXES = (".json", ".tsv", ".txt", ".log", ".out", ".stdout", ".md")
COMPRESSED = tuple(f"{suffix}.gz" for suffix in SUFFIXES)
MAX_FOLDERS_DEEP = 64
MAX_SMALL_BYTES = 1024 * 1024
CHUNK_BYTES = 4 * 1024 * 1024
HEAD_BYTES = 4096
Severity = Literal["error", "warning"]
MAX_PROBLEMS_OF_A_FILE = 25
COMMIT = re.compile(r"[0-9a-f]{40}")
MLCOMMONS = "https://github.com/mlcommons"
# A folder that was downloaded as a zip has its branch or commit behind its name. Unknown rounds go
# by the name of their repository.
_VERSION = re.compile(
    r"(?:training_results_v(?P<named>\d{1,2}\.\d{1,2})|(?:.*[_-])?v(?P<known>0\.[567]|[1-9]\d?\.[01]))"
    r"(?:\.\d)?(?:-(?:main|master|[0-9a-f]{7,40}))?"
)


@dataclass(frozen=True)
class ArchiveFile:
    """One file. `path` is shown to people, `place` has the parts of its absolute path.

    `refused` is why it is forbidden, for example because it is a symbolic link.
    """

    path: str
    place: Place
    size: int
    refused: str | None = None

    @property
    def name(self) -> str:
        return self.place[-1]


class Archive:
    """The listed files of a tree by path, and `compressed` ones that were left out.

    `read` yields a file in pieces of a size, or raises LogFormatError. `look` finds other files.
    """

    def __init__(
        self,
        files: Iterable[ArchiveFile],
        read: Callable[[ArchiveFile, int], Iterator[bytes]],
        look: Callable[[Place], ArchiveFile | None] = lambda place: None,
        compressed: Sequence[str] = (),
    ) -> None:
        self.files = {file.place: file for file in files}
        self.compressed = compressed
        self._read = read
        self._look = look

    def find(self, place: Place) -> ArchiveFile | None:
        return self.files.get(place) or self._look(place)

    def chunks(self, file: ArchiveFile, *, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yield the content of a file in pieces. Raises LogFormatError for a refused one."""
        if file.refused is not None:
            expected, code = "a regular file with a plain name", "not_a_regular_file"
            raise LogFormatError(file.refused, file=file.path, expected=expected, code=code)
        return self._read(file, size)

    def small(self, file: ArchiveFile, *, limit: int = MAX_SMALL_BYTES) -> bytes:
        """Read a small file as a whole. Raises LogFormatError for a larger one."""
        content = bytearray()
        for chunk in self.chunks(file):
            content += chunk
            if len(content) > limit:
                message, expected = f"more than {limit:,} bytes", f"at most {limit:,} bytes"
                raise LogFormatError(message, file=file.path, expected=expected, code="too_large")
        return bytes(content)

    def digest(self, file: ArchiveFile) -> bytes:
        """Return the SHA-256 of a file. Raises LogFormatError for a refused one."""
        digest = hashlib.sha256()
        for chunk in self.chunks(file):
            digest.update(chunk)
        return digest.digest()


def shown(name: str) -> str:
    """Escape a name for printing and writing where it is more than plain text."""
    return name if name.isprintable() else ascii(name)[1:-1]


def version_of(place: Place) -> str | None:
    """Return the MLPerf version in the innermost folder name ("training_results_v5.1" is "5.1")."""
    for part in reversed(place):
        if match := _VERSION.fullmatch(part):
            return match["named"] or match["known"]
    return None


def find_identical(archive: Archive, files: Iterable[ArchiveFile]) -> dict[str, tuple[str, ...]]:
    """Map the path of every log that has copies to the paths of the others.

    Only files of one size with the same beginning are read whole. Unreadable ones are left out.
    """
    keys: tuple[Callable[[ArchiveFile], object], ...] = (
        lambda file: file.size,
        lambda file: next(archive.chunks(file, size=HEAD_BYTES), None),
        archive.digest,
    )
    groups = [[file for file in files if file.size and file.refused is None]]
    for key_of in keys:
        parts: dict[object, list[ArchiveFile]] = defaultdict(list)
        for place, group in enumerate(groups):
            for file in group if len(group) > 1 else ():
                with suppress(LogFormatError):
                    parts[place, key_of(file)].append(file)
        groups = list(parts.values())
    return {
        file.path: tuple(other.path for other in group if other is not file)
        for group in groups
        for file in group
        if len(group) > 1
    }


@dataclass(frozen=True)
class Source:
    """A published archive. `benchmarks` fits the ids of its benchmarks."""

    name: str
    url: str
    benchmarks: str
    commits: list[str]


@cache
def known_sources() -> tuple[Source, ...]:
    path = Path(__file__).with_name("sources.toml")
    whole = parse_toml(path.read_bytes(), file=path.name)
    return tuple(Source(**table) for table in whole["source"])


def find_source(commit: str | None, benchmark_id: str | None = None) -> Source | None:
    """Find the archive with a commit, and with results of a benchmark if one is given."""
    for source in known_sources():
        is_its = benchmark_id is None or re.fullmatch(source.benchmarks, benchmark_id)
        if is_its and commit in source.commits:
            return source
    return None


@dataclass(frozen=True)
class Problem(Violation):
    """One problem. An error breaks a rule. A warning is odd, or good to know."""

    severity: Severity = "error"


class Problems:
    """The problems of one submission, in the order they were found."""

    def __init__(self) -> None:
        # By the problem without its line: how often it was found, and where first.
        self._found: dict[Problem, tuple[int, int | None]] = {}
        self._counts: dict[str | None, int] = defaultdict(int)

    def __iter__(self) -> Iterator[Problem]:
        for problem, (times, line) in self._found.items():
            more = "" if times == 1 else f" (and in {times - 1} more lines)"
            yield replace(problem, line=line, message=problem.message + more)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [dict(vars(problem)) for problem in self]

    @property
    def has_error(self) -> bool:
        return any(problem.severity == "error" for problem in self._found)

    def add(
        self,
        code: str,
        message: str,
        file: str | None = None,
        field: str | None = None,
        expected: str | None = None,
        *,
        line: int | None = None,
        severity: Severity = "error",
    ) -> None:
        """Note a problem. Keeps only so many of one file, and counts repetitions."""
        problem = Problem(code, message, file, field, expected, severity=severity)
        if line is not None and problem in self._found:
            times, first = self._found[problem]
            self._found[problem] = times + 1, first
            return
        self._counts[file] += 1
        if self._counts[file] == MAX_PROBLEMS_OF_A_FILE:
            problem = Problem("more", "and more problems", file, severity=severity)
        if self._counts[file] <= MAX_PROBLEMS_OF_A_FILE:
            self._found[problem] = 1, line

    warn = partialmethod(add, severity="warning")  # Odd, or good to know.

    def report(self, error: RuleError, severity: Severity = "error") -> None:
        code, place = error.code or "bad_value", (error.file, error.field, error.expected)
        self.add(code, error.message, *place, line=error.line, severity=severity)

    @contextmanager
    def reported(self, severity: Severity = "error") -> Iterator[None]:
        """Note each problem of a rule's exception raised within."""
        try:
            yield
        except RuleError as error:
            for each in error.problems:
                self.report(each, severity)

    def violate(
        self, violation: Violation, *, file: str | None = None, severity: Severity = "error"
    ) -> None:
        """Note a rule that runs break together."""
        fields = vars(violation) | {"file": violation.file or file}
        self.add(**fields, severity=severity)
