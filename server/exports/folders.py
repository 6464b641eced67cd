"""A folder or archive that is there whole or not at all: made beside its place, then renamed."""

import fcntl
import os
import secrets
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server.errors import ConflictError

PARTIAL = ".partial-"
LOCK = ".lock"
TAR = ".tar"


@contextmanager
def whole_or_not(path: Path) -> Iterator[Path]:
    """A folder to fill; it has its final name when the block ends well, and is gone otherwise.

    A path that ends in .tar becomes an archive of the folder. Raises ConflictError if something has
    that name already. Whoever is killed leaves a hidden folder `.NAME.partial-…` behind.
    """
    if path.exists():
        raise ConflictError(f"{path} is there already; name another place, or remove it first.")
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}{PARTIAL}{secrets.token_hex(8)}")
    made.mkdir()
    archive = made.with_name(made.name + TAR)
    try:
        yield made
        finished = made
        if path.suffix == TAR:
            _pack(made, archive, name=path.stem)
            finished = archive
        _sync_files(finished)
        if path.exists():
            raise ConflictError(f"{path} was made meanwhile; what this made is removed.")
        finished.rename(path)
        sync(path.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)
        archive.unlink(missing_ok=True)


@contextmanager
def only_one(folder: Path, *, what: str) -> Iterator[None]:
    """Hold a folder's lock, which a process that dies gives back. Raises ConflictError if held."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(
                f"Another {what} is under way in {folder}; nothing done."
            ) from error
        yield


def remove_partial(folder: Path) -> None:
    """Remove what killed ones left; whoever calls holds the folder's lock."""
    for each in folder.iterdir():
        if each.name.startswith(".") and PARTIAL in each.name:
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Write a file or a folder's names to the disk."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _sync_files(path: Path) -> None:
    """The files and folders of the first two levels; logs were written to the disk one by one."""
    if path.is_file():
        sync(path)
        return
    for each in (*path.glob("*"), *path.glob("tables/*"), *path.glob("benchmarks/*"), path):
        sync(each)


def _pack(folder: Path, archive: Path, *, name: str) -> None:
    with tarfile.open(archive, "w") as target:
        target.add(folder, arcname=name)
