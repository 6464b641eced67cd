"""The files of a training package: read from a folder without following links, and sent."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from finishline.client.errors import Refused
from finishline.client.files import problems_of
from finishline.client.transport import Progress, Transport
from finishline.rules.benchmarks.policy import LARGEST_PACKAGE_BYTES
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.trainings.manifest import PackageError
from finishline.rules.trainings.package import MOST_FILES, is_left_out, package_index


def package_files(source: str | PathLike[str] | Mapping[str, bytes | str]) -> dict[str, bytes]:
    """The files of a package by name, of a folder or as given.

    Raises Refused with every file that cannot be sent, OSError for a folder that cannot be read.
    """
    if isinstance(source, Mapping):
        return {
            name: content.encode() if isinstance(content, str) else content
            for name, content in source.items()
        }
    folder = Path(fspath(source))
    files, problems = read_folder(folder)
    if problems:
        raise Refused(f"{folder} has files that no package has.", problems=problems_of(problems))
    return files


def send_package(
    transport: Transport,
    files: Mapping[str, bytes],
    *,
    hardware_class: str | None = None,
    key: str | None = None,
    progress: Progress | None = None,
) -> tuple[Any, bool]:
    """Hand a package in: the view of its submission, and whether it was sent before.

    Without a `key` the same files for the same hardware class are one entry.
    """
    sha256 = sha256_of(package_index(files))
    own_key = hashlib.sha256(f"{sha256} {hardware_class or ''}".encode()).hexdigest()
    return transport.post_form(
        "/trainings",
        files=[("files", (name, content, "text/plain")) for name, content in files.items()],
        fields={} if hardware_class is None else {"hardware_class": hardware_class},
        key=key or own_key,
        progress=progress,
    )


def read_folder(
    folder: Path, *, most_files: int = MOST_FILES, most_bytes: int = LARGEST_PACKAGE_BYTES
) -> tuple[dict[str, bytes], list[RuleError]]:
    """The files below a folder by their relative names, and problems of those that were not read.

    Raises OSError if the folder itself cannot be read.
    """
    files: dict[str, bytes] = {}
    problems: list[RuleError] = []
    for name, path in _walk(folder, folder):
        if len(files) > 2 * most_files:
            break  # Too many is told once; the rest is not read.
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
            problems.append(PackageError(kind, file=name, expected="a regular file"))
        elif status.st_size > most_bytes:
            expected = f"at most {most_bytes} bytes"
            problems.append(PackageError(f"{status.st_size} bytes", file=name, expected=expected))
        else:
            files[name] = path.read_bytes()
    return files, problems


def _walk(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if is_left_out(entry.name):
                continue
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(path, root)
            else:
                yield path.relative_to(root).as_posix(), path
