"""Version of the running code: the package's version, and the commit where it can be known."""

from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from finishline.rules.proof.proof import CodePart
from server.base.places import SOURCE

VERSION = version("finishline-server")  # Read from the files of the installation, once.
HEX_DIGITS = frozenset("0123456789abcdef")


@lru_cache
def code_version(commit: str | None) -> CodePart:
    """The version of this process; its commit where the settings name none."""
    return CodePart(version=VERSION, commit=commit or commit_of(SOURCE))


def commit_of(checkout: Path) -> str | None:
    """The commit a checkout is at, without asking git; None where there is no checkout."""
    try:
        folder = _git_folder(checkout)
        head = (folder / "HEAD").read_text().strip()
        if head.startswith("ref: "):
            head = _resolve(folder, head.removeprefix("ref: "))
    except (OSError, UnicodeDecodeError):
        return None
    return head if head and set(head) <= HEX_DIGITS else None


def _git_folder(checkout: Path) -> Path:
    """The .git folder, or the one that a worktree's .git file names."""
    found = checkout / ".git"
    if found.is_dir():
        return found
    return (checkout / found.read_text().strip().removeprefix("gitdir: ")).resolve()


def _resolve(folder: Path, ref: str) -> str:
    """The commit of a branch: a file of its own, or a line of packed-refs."""
    shared = folder / "commondir"
    root = (folder / shared.read_text().strip()).resolve() if shared.exists() else folder
    loose = root / ref
    if loose.exists():
        return loose.read_text().strip()
    for line in (root / "packed-refs").read_text().splitlines():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return ""
