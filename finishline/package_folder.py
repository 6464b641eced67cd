"""Write the files of a code submission to a temporary folder for its sandbox."""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Absent on Windows, like sandboxes.
    fcntl = None  # type: ignore[assignment]

PREFIX = "finishline-package-"
# A new folder is held a moment later.
YOUNG_SECONDS = 10.0


@contextmanager
def package_folder(files: Mapping[str, bytes]) -> Iterator[Path]:
    """Write these files to a folder that every user of this machine may read until it is left.

    Folders that killed processes of this user left behind go too: a source may be under embargo.
    Raises ValueError for a name outside the folder, OSError for an impossible file name.
    """
    _remove_left()
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, _held(name):
        folder = Path(name).resolve()
        folder.chmod(0o755)
        for file, content in files.items():
            path = (folder / file).resolve()
            if folder not in path.parents:
                raise ValueError(f"{file!r} is no name of a file in a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield folder


@contextmanager
def _held(folder: str) -> Iterator[None]:
    """Hold a folder at most until this process ends."""
    if fcntl is None:
        yield
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_SH)
        yield
    finally:
        os.close(number)


def _remove_left() -> None:
    if fcntl is None:
        return
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # Another process may be faster.
            found = path.lstat()
            is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            if not is_own or time.time() - found.st_mtime < YOUNG_SECONDS:
                continue
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(number)
