"""The files of a training package in a folder, read without following links."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from finishline.rules.errors import RuleError
from finishline.rules.trainings.manifest import PackageError
from finishline.rules.trainings.package import MOST_FILES
from finishline.rules.trainings.policy import LARGEST_PACKAGE_BYTES

# Folders that tools leave beside code; they are no part of a package.
SKIPPED = frozenset({"__pycache__", ".git", ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache"})


def read_folder(folder: Path) -> tuple[dict[str, bytes], list[RuleError]]:
    """The files below a folder by their relative names, and problems of those that were not read.

    Raises OSError if the folder itself cannot be read.
    """
    files: dict[str, bytes] = {}
    problems: list[RuleError] = []
    for name, path in _walk(folder, folder):
        if len(files) > 2 * MOST_FILES:
            break  # Too many is told once; the rest is not read.
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a link" if stat.S_ISLNK(status.st_mode) else "no regular file"
            problems.append(PackageError(kind, file=name, expected="a regular file"))
        elif status.st_size > LARGEST_PACKAGE_BYTES:
            expected = f"at most {LARGEST_PACKAGE_BYTES} bytes"
            problems.append(PackageError(f"{status.st_size} bytes", file=name, expected=expected))
        else:
            files[name] = path.read_bytes()
    return files, problems


def _walk(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED:
                    yield from _walk(path, root)
            else:
                yield path.relative_to(root).as_posix(), path
