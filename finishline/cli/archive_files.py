"""The files of an archive on this machine: listed without links, read in pieces, sent as a form."""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from finishline.rules.archive.files import (
    COMPRESSED,
    MAX_FOLDERS_DEEP,
    SUFFIXES,
    Archive,
    ArchiveFile,
    Place,
    shown,
)
from finishline.rules.archive.parcels import Parcel
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import check_file_name


@dataclass(frozen=True)
class Listing:
    """Files under a path given by a person; `is_file` if it names one file."""

    archive: Archive
    is_file: bool


def list_archive(path: Path) -> Listing:
    """The files at a path that can belong to a submission. Raises OSError if it is not there."""
    root = path.resolve(strict=True)
    if root.is_dir():
        compressed: list[str] = []
        files = _walk(root, compressed)
        archive = Archive(files, _read, lambda place: _outside(place, root), compressed)
        return Listing(archive, is_file=False)
    file = _listed(path.name, root, os.lstat(root))
    return Listing(Archive([file], _read, lambda place: _outside(place, None)), is_file=True)


def _walk(root: Path, compressed: list[str]) -> Iterator[ArchiveFile]:
    """Every file below a folder with a name that counts, in order; links are never followed.

    Compressed ones are added to `compressed` instead.
    """
    folders = [(str(root), "", root.parts)]
    while folders:
        folder, prefix, parts = folders.pop()
        try:
            with os.scandir(folder) as found:
                items = sorted(found, key=lambda item: item.name)
        except OSError:
            continue  # A folder that cannot be opened holds nothing that can be scored.
        below = []
        for item in items:
            if item.is_dir(follow_symlinks=False):
                if (
                    not item.name.startswith(".")
                    and len(parts) - len(root.parts) < MAX_FOLDERS_DEEP
                ):
                    below.append((item.path, f"{prefix}{item.name}/", (*parts, item.name)))
            elif item.name.lower().endswith(SUFFIXES):
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:
                    continue  # It was there a moment ago.
                yield _file(prefix + item.name, (*parts, item.name), status)
            elif item.name.lower().endswith(COMPRESSED):
                compressed.append(shown(prefix + item.name))
        folders += reversed(below)


def _listed(name: str, path: Path, status: os.stat_result) -> ArchiveFile:
    return _file(name, path.parts, status)


def _file(path: str, place: Place, status: os.stat_result) -> ArchiveFile:
    refused = None
    if not stat.S_ISREG(status.st_mode):
        link = stat.S_ISLNK(status.st_mode)
        refused = "a symbolic link" if link else "not a regular file"
    try:
        check_file_name(path)
    except LogFormatError as error:
        refused = error.message
    return ArchiveFile(shown(path), place, status.st_size, refused)


def _outside(place: Place, root: Path | None) -> ArchiveFile | None:
    """A file that was not listed because it lies elsewhere; files below `root` are listed."""
    if root is not None and place[: len(root.parts)] == root.parts:
        return None
    path = Path(*place)
    try:
        status = path.lstat()
    except OSError:
        return None
    return _file(path.name, place, status) if stat.S_ISREG(status.st_mode) else None


def _read(file: ArchiveFile, chunk_bytes: int) -> Iterator[bytes]:
    path = "/".join(("", *file.place[1:]))
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(file, "not a regular file")
        size = min(status.st_size + 1, chunk_bytes)
        while chunk := os.read(opened, size):
            yield chunk
            if len(chunk) < size:
                return  # A regular file gives less than was asked for at its end alone.
    except OSError as error:
        raise _unreadable(file, error) from error
    finally:
        os.close(opened)


def _unreadable(file: ArchiveFile, why: object) -> LogFormatError:
    reason = why.strerror if isinstance(why, OSError) else str(why)
    return LogFormatError(
        f"cannot be read ({reason})",
        file=file.path,
        expected="a readable file",
        code="unreadable",
    )


Part = tuple[str, tuple[str, Any, str]]


def parts_of(parcel: Parcel, claim_json: bytes, opened: ExitStack) -> list[Part]:
    """The files as parts of a form; `opened` closes them. Raises LogFormatError."""
    claim = ("submission", (parcel.claim_name, claim_json, "application/json"))
    return [claim] + [
        ("logs", (file.name, opened.enter_context(_open(file)), "text/plain"))
        for file in parcel.logs
    ]


def _open(file: ArchiveFile) -> BinaryIO:
    """A regular file, never through a link that took its place since it was listed."""
    path = "/".join(("", *file.place[1:]))
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(file, error) from error
    opened = os.fdopen(number, "rb")
    if not stat.S_ISREG(os.fstat(number).st_mode):
        opened.close()
        raise _unreadable(file, "not a regular file")
    return opened
