"""Logs that are the same byte for byte: two systems cannot have run alike."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable

from rules.archive.files import Archive, ArchiveFile
from rules.errors import LogFormatError

HEAD_BYTES = 4096


def find_identical(archive: Archive, files: Iterable[ArchiveFile]) -> dict[str, tuple[str, ...]]:
    """For the path of every log that has copies, the paths of the others.

    Only files of one size that begin alike are read whole; one that cannot be read has no copies.
    """
    sound = [file for file in files if file.size and file.refused is None]
    alike = _groups(sound, lambda file: file.size)
    alike = [group for each in alike for group in _groups(each, lambda file: _head(archive, file))]
    same = [group for each in alike for group in _groups(each, lambda file: _digest(archive, file))]
    return {
        file.path: tuple(other.path for other in group if other is not file)
        for group in same
        for file in group
    }


def _groups(
    files: Iterable[ArchiveFile], key_of: Callable[[ArchiveFile], object]
) -> list[list[ArchiveFile]]:
    """The files that share a key with another."""
    groups: dict[object, list[ArchiveFile]] = defaultdict(list)
    for file in files:
        key = key_of(file)
        if key is not None:
            groups[key].append(file)
    return [group for group in groups.values() if len(group) > 1]


def _head(archive: Archive, file: ArchiveFile) -> bytes | None:
    try:
        return next(archive.chunks(file, size=HEAD_BYTES), None)
    except LogFormatError:
        return None


def _digest(archive: Archive, file: ArchiveFile) -> bytes | None:
    digest = hashlib.sha256()
    try:
        for chunk in archive.chunks(file):
            digest.update(chunk)
    except LogFormatError:
        return None
    return digest.digest()
