"""An archive of results as a zip that was uploaded: bounded, its names and sizes never trusted."""

import os
import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from finishline.rules.archive.files import (
    COMMIT,
    COMPRESSED,
    MAX_FOLDERS_DEEP,
    SUFFIXES,
    Archive,
    ArchiveFile,
    shown,
)
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import check_file_name
from server.base.errors import ContentError, TooLargeError
from server.base.settings import MIB

MOST_FILES = 20_000
# A repository holds much besides results: each entry takes its name and 46 bytes.
MOST_DIRECTORY_BYTES = 8 * MIB
ROOT = "/"
END = struct.Struct("<4s4H2IH")
END_MARK, ZIP64_MARK, ZIP64_BYTES = b"PK\x05\x06", b"PK\x06\x07", 20
LONGEST_COMMENT = 65_535
ENCRYPTED = 0x1
NO_ZIP = "This is no zip, or one of the kind for 4 GiB and more. Choose the folder itself."
# Each is a fault of the file, found while it is read.
FAULTS = (
    BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeDecodeError,
    struct.error,
)


@contextmanager
def open_zip(path: Path) -> Iterator[ZipFile]:
    """Open an uploaded zip. Raises ContentError, or TooLargeError for a long list of files."""
    _check_end(path)
    try:
        opened = ZipFile(path)
    except (*FAULTS, ValueError) as error:
        raise ContentError(NO_ZIP) from error
    with opened:
        if any(info.header_offset < 0 for info in opened.infolist()):
            raise ContentError(NO_ZIP)  # The system refuses to read there.
        yield opened


def read_archive(opened: ZipFile, *, most_bytes: int) -> Archive:
    """The files of a zip that can belong to a submission, in order of their paths.

    Raises ContentError for a name that is there twice, TooLargeError for too many files or for
    more than `most_bytes` unpacked.
    """
    infos = [info for info in opened.infolist() if _counts(info, SUFFIXES)]
    packed = [shown(info.filename) for info in opened.infolist() if _counts(info, COMPRESSED)]
    if len(infos) > MOST_FILES:
        raise TooLargeError(f"{len(infos):,} files; expected at most {MOST_FILES:,}.")
    if sum(info.file_size for info in infos) > most_bytes:
        raise TooLargeError(f"The files are larger than {most_bytes / MIB:.0f} MiB unpacked.")
    files = {info.filename: info for info in infos}
    if len(files) < len(infos):
        raise ContentError("A file is in the zip twice. Zip the folder again.")
    listed = sorted((_listed(info) for info in infos), key=lambda file: file.place)

    def read(file: ArchiveFile, chunk_bytes: int) -> Iterator[bytes]:
        return _read(opened, files[name_of(file)], file, chunk_bytes)

    return Archive(listed, read, compressed=packed)


def name_of(file: ArchiveFile) -> str:
    """The name of a file in its zip."""
    return "/".join(file.place[1:])


def commit_in(opened: ZipFile) -> str | None:
    """The commit that a zip names in its comment, as `git archive` and GitHub write it."""
    comment = opened.comment.decode("ascii", errors="replace").strip()
    return comment if COMMIT.fullmatch(comment) else None


def _check_end(path: Path) -> None:
    """Hold the end of a zip against limits before the list of its files is read into memory."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        tail_bytes = min(size, ZIP64_BYTES + END.size + LONGEST_COMMENT)
        file.seek(-tail_bytes, os.SEEK_END)
        tail = file.read()
    at = tail.rfind(END_MARK)
    if tail[-END.size :].startswith(END_MARK) and tail.endswith(b"\0\0"):
        at = len(tail) - END.size  # The place where Python looks first.
    if at < 0 or len(tail) < at + END.size or ZIP64_MARK in tail[max(0, at - ZIP64_BYTES) : at]:
        raise ContentError(NO_ZIP)
    directory_bytes = END.unpack_from(tail, at)[5]
    if directory_bytes > MOST_DIRECTORY_BYTES:
        raise TooLargeError(
            "The zip lists too many files. Leave out folders that hold no results, such as code."
        )


def _counts(info: ZipInfo, suffixes: tuple[str, ...]) -> bool:
    """Whether an entry can belong to a submission: as the command lists a folder."""
    *folders, name = info.filename.split("/")
    return (
        name.lower().endswith(suffixes)
        and len(folders) <= MAX_FOLDERS_DEEP
        and not any(folder.startswith(".") for folder in folders if folder not in (".", ".."))
    )


def _listed(info: ZipInfo) -> ArchiveFile:
    refused = None
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        refused = "a symbolic link" if kind == stat.S_IFLNK else "not a regular file"
    elif info.flag_bits & ENCRYPTED or info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        refused = "encrypted, or packed by another method than deflate"
    try:
        check_file_name(info.filename)
    except LogFormatError as error:
        refused = error.message
    place = (ROOT, *info.filename.split("/"))
    return ArchiveFile(shown(info.filename), place, info.file_size, refused)


def _read(opened: ZipFile, info: ZipInfo, file: ArchiveFile, chunk_bytes: int) -> Iterator[bytes]:
    try:
        with opened.open(info) as content:
            while chunk := content.read(chunk_bytes):
                yield chunk
    except FAULTS as error:
        raise LogFormatError(
            f"cannot be unpacked ({error})",
            file=file.path,
            expected="a zip without a fault",
            code="unreadable",
        ) from error
