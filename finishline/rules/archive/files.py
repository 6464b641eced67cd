"""Files of an archive, the results published in them, and the rounds' publication days.

A round without a sourced day is left out: its results are of the day that an import names, else of
the import.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from finishline.rules.errors import LogFormatError

Place = tuple[str, ...]
# Names of files that can belong to a submission, and how deep in a tree they may lie.
SUFFIXES = (".json", ".tsv", ".txt", ".log", ".out")
COMPRESSED = tuple(f"{suffix}.gz" for suffix in SUFFIXES)
MAX_FOLDERS_DEEP = 64
MAX_SMALL_BYTES = 1024 * 1024
CHUNK_BYTES = 4 * 1024 * 1024
# There were 0.5 to 0.7, and since then two a year.
# A folder that was downloaded as a zip has its branch or commit behind its name.
# A round that nobody knows yet is one only by the name of its repository.
_VERSION = re.compile(
    r"(?:training_results_v(?P<named>\d{1,2}\.\d{1,2})|(?:.*[_-])?v(?P<known>0\.[567]|[1-9]\d?\.[01]))"
    r"(?:\.\d)?(?:-(?:main|master|[0-9a-f]{7,40}))?"
)


@dataclass(frozen=True)
class ArchiveFile:
    """One file. `path` is shown to people, relative to the path they gave.

    `place` has the parts of its absolute path. `refused` says why it may not be read, for example
    that it is a symbolic link; None for a regular file with a safe name.
    """

    path: str
    place: Place
    size: int
    refused: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.place[-1]


class Archive:
    """The listed files of a tree, in order of their paths, and how to read one.

    `read` yields the content of a file in pieces of at most a size and may raise LogFormatError;
    `look` answers for a place outside the listing: its file or None. `compressed` has the paths of
    the files that would be listed if they were not compressed.
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
        """The file at a place, listed or not."""
        return self.files.get(place) or self._look(place)

    def chunks(self, file: ArchiveFile, *, size: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The content of a file, in pieces. Raises LogFormatError if it may not be read."""
        if file.refused is not None:
            raise LogFormatError(
                file.refused,
                file=file.path,
                expected="a regular file with a plain name",
                code="not_a_regular_file",
            )
        return self._read(file, size)

    def small(self, file: ArchiveFile, *, limit: int = MAX_SMALL_BYTES) -> bytes:
        """The whole content of a file that has to be small. Raises LogFormatError."""
        content = bytearray()
        for chunk in self.chunks(file):
            content += chunk
            if len(content) > limit:
                raise LogFormatError(
                    f"more than {limit:,} bytes",
                    file=file.path,
                    expected=f"at most {limit:,} bytes",
                    code="too_large",
                )
        return bytes(content)


def shown(name: str) -> str:
    """A name as it may be printed and written: with escapes where it is no plain text."""
    return name if name.isprintable() else ascii(name)[1:-1]


def version_of(place: Place) -> str | None:
    """The MLPerf version that folders name ("training_results_v5.1" is "5.1"), the innermost."""
    for part in reversed(place):
        if match := _VERSION.fullmatch(part):
            return match["named"] or match["known"]
    return None


COMMIT = re.compile(r"[0-9a-f]{40}")
MLCOMMONS = "https://github.com/mlcommons"


@dataclass(frozen=True)
class Source:
    """A published archive. `benchmarks` fits the ids of the benchmarks that it has results of."""

    name: str
    url: str
    benchmarks: str
    commits: tuple[str, ...]


# The newest commit of each repository on 2026-11-28, and of v5.1 every one since its publication.
_COMMITS = {
    "0.5": ("c71f2e7c4b11ec7ab89eb4d8ceaadaae8529fff7",),
    "0.6": ("f312518c2d6107eec983750eed23950f1f0c8a0e",),
    "0.7": ("0a8a85a209c8e45b661596c382cc20f4e32fd2fe",),
    "1.0": ("50619b5df63f1d646715a82c1fb8c35f271e25fa",),
    "1.1": ("ebe92f81f7a69255a3b0a907595d8be623d75ec6",),
    "2.0": ("8437fbb78349aa3c3054aeccb1d47d2a315a80e7",),
    "2.1": ("158189d4cbfbee366c10da1f0f086c85d8f15b5f",),
    "3.0": ("63e326c400f5d8bb8c6070a9ab08332d4931152e",),
    "3.1": ("d06288b2bd675a9d88e0e6181f5bb5626b71ec19",),
    "4.0": ("6fe954378efe4a1a1bd665550b18ff8f26018def",),
    "4.1": ("b87b9e396f771345d4ef122ba33456304f15228d",),
    "5.0": ("0fdc28f013256aea84fa36fdaf1e0fa46094b18c",),
    "5.1": (
        "441d65f4445cd59687466533fd9f55399136e7a4",
        "d879777747a5ba060a24d4a5ce48d0de61a99295",
        "504c3b501d78084755d99326bc5aa199e7535f81",
        "48843e562612738d6fd585faa3c1dac06bd11baf",
        "38ec542b2e5d0e670968bab2556c012079351426",
        "4da2d1cd71eb30c855dad12712480ae5ac90dd89",
    ),
}
KNOWN_SOURCES = (
    Source(
        "DAWNBench",
        "https://github.com/stanford-futuredata/dawn-bench-entries",
        "cifar10|imagenet|squad",
        ("fb27b827bd83eff9021698ffe576b33a100e0b78",),
    ),
    *(
        Source(
            f"MLPerf Training v{version}",
            f"{MLCOMMONS}/training_results_v{version}",
            f"mlperf-v{re.escape(version)}-.+",
            commits,
        )
        for version, commits in _COMMITS.items()
    ),
)


def find_source(benchmark_id: str, commit: str | None) -> Source | None:
    """The known archive that has a commit and results of a benchmark; None where there is none."""
    for source in KNOWN_SOURCES:
        if commit in source.commits and re.fullmatch(source.benchmarks, benchmark_id):
            return source
    return None


def source_name(commit: str) -> str | None:
    """The name of the known archive that has a commit; None where there is none."""
    return next((source.name for source in KNOWN_SOURCES if commit in source.commits), None)
