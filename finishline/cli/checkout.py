"""The commit of a checkout, read from its files: no program runs on another user's folder."""

import re
from pathlib import Path

from finishline.rules.archive.files import COMMIT

REF = re.compile(r"ref: (refs/[A-Za-z0-9._/-]+)")
LARGEST = 4 * 1024 * 1024


def commit_of(folder: Path) -> str | None:
    """The commit that a folder is a checkout of; None where its files name none.

    Looks at the folder and at those above it. A checkout may hold other files than its commit: its
    importer answers for that.
    """
    place = folder.resolve()
    for each in (place, *place.parents):
        if (each / ".git").is_dir():
            return _head(each / ".git")
    return None


def _head(git: Path) -> str | None:
    head = _read(git / "HEAD")
    ref = REF.fullmatch(head)
    if ref is None:
        return _commit(head)
    if ".." in ref[1].split("/"):
        return None
    return _commit(_read(git / ref[1])) or _packed(_read(git / "packed-refs"), ref[1])


def _packed(text: str, ref: str) -> str | None:
    lines = (line.partition(" ") for line in text.splitlines())
    return next((_commit(commit) for commit, _, name in lines if name == ref), None)


def _commit(text: str) -> str | None:
    return text if COMMIT.fullmatch(text) else None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            return opened.read(LARGEST).decode("utf-8", errors="replace").strip()
    except OSError:
        return ""
