"""Folders of exports and backups: each is there whole or not at all, dated, the oldest removed."""

import fcntl
import json
import re
import secrets
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from server.base.artifacts import sync
from server.base.database import utc_now
from server.base.errors import ConflictError

PARTIAL = ".partial-"
LOCK = ".lock"
TAR = ".tar"
MANIFEST = "manifest.json"
DATED = re.compile(r"finishline-\d{8}T\d{6}Z")
LAST = "last.json"


@contextmanager
def whole_or_not(path: Path) -> Iterator[Path]:
    """A folder to fill; it has its final name when the block ends well, and is gone otherwise.

    A path that ends in .tar becomes an archive of the folder. Raises ConflictError if something has
    that name already. A killed process leaves a hidden folder `.NAME.partial-…` behind.
    """
    if path.exists():
        raise ConflictError(f"{path} exists already; name another place, or remove it first.")
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
            raise ConflictError(f"{path} was made meanwhile; this one is removed.")
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
                f"Another {what} is under way in {folder}; nothing was changed."
            ) from error
        yield


def remove_partial(folder: Path) -> None:
    """Remove the leftovers of killed processes; the caller holds the folder's lock."""
    for each in folder.iterdir():
        if each.name.startswith(".") and PARTIAL in each.name:
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)


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


def note_success(folder: Path, name: str, *, started: datetime, ended: datetime) -> None:
    """Write into a folder of exports or backups which one ended well, when, and how long it took.

    Readers of metrics read it too.
    """
    content = {
        "name": name,
        "ended_at": ended.isoformat(),
        "seconds": (ended - started).total_seconds(),
    }
    fresh = folder / f".{LAST}.{secrets.token_hex(8)}"
    fresh.write_text(json.dumps(content) + "\n")
    fresh.replace(folder / LAST)


Progress = Callable[[str], None]
SECONDS_BETWEEN = 5.0


def silent(_line: str) -> None:
    """Say nothing."""


def now_and_then(say: Progress, *, what: str, seconds: float = SECONDS_BETWEEN) -> Progress:
    """Say a line at most every so many seconds, the first not before then."""
    last = time.monotonic()

    def maybe(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            say(f"{what}: {line}")

    return maybe


def last_success(folder: Path) -> tuple[float, float]:
    """End of the last successful copy in a folder, in Unix time, and its seconds; 0 if none."""
    try:
        found = json.loads((folder / LAST).read_text())
        return datetime.fromisoformat(found["ended_at"]).timestamp(), float(found["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, 0.0


def dated_name(moment: datetime) -> str:
    """finishline-20300102T030405Z: sorted by name is sorted by time."""
    return f"finishline-{moment:%Y%m%dT%H%M%SZ}"


def dated_folders(folder: Path) -> list[Path]:
    """Folders with a dated name and a manifest, the oldest first."""
    return sorted(
        each
        for each in folder.iterdir()
        if DATED.fullmatch(each.name) and (each / MANIFEST).is_file()
    )


def prune(folder: Path, *, keep: int) -> list[Path]:
    """Remove all dated folders but the latest few; returns those removed."""
    old = dated_folders(folder)[:-keep]
    for each in old:
        # Renamed first: a folder that is half removed has no trusted name.
        gone = each.with_name(f".{each.name}.partial-removed")
        each.rename(gone)
        shutil.rmtree(gone)
    return old


@contextmanager
def dated_copy(
    root: Path, *, what: str, keep: int | None, say: Progress = silent
) -> Iterator[Path]:
    """A dated path to make in a folder whose lock is held.

    Once it is made all but the latest `keep` are removed, and its success is noted. Raises
    ConflictError while another is made.
    """
    with only_one(root, what=what):
        remove_partial(root)
        started = utc_now()
        path = root / dated_name(started)
        yield path
        for each in prune(root, keep=keep) if keep is not None else ():
            say(f"removed {each.name}")
        note_success(root, path.name, started=started, ended=utc_now())
