"""The files of an archive as the rules see them: names, sizes, and a way to read."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from finishline.rules.errors import LogFormatError

Place = tuple[str, ...]
MAX_SMALL_BYTES = 1024 * 1024
CHUNK_BYTES = 4 * 1024 * 1024
# There were 0.5 to 0.7, and since then two a year.
_VERSION = re.compile(r"(?:.*[_-])?v(0\.[567]|[1-9]\d?\.[01])(?:\.\d)?")


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
    `look` answers for a place outside the listing: its file or None.
    """

    def __init__(
        self,
        files: Iterable[ArchiveFile],
        read: Callable[[ArchiveFile, int], Iterator[bytes]],
        look: Callable[[Place], ArchiveFile | None] = lambda place: None,
    ) -> None:
        self.files = {file.place: file for file in files}
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
            return match[1]
    return None
