"""Folders of the server, in a checkout and in a wheel, and the version of its code."""

from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from finishline.places import commit_of, find_folder
from finishline.rules.proof.proof import CodePart

PACKAGE = Path(__file__).resolve().parents[1]
SOURCE = PACKAGE.parent
BENCHMARKS = find_folder(PACKAGE, "benchmarks")
DOCS = find_folder(PACKAGE, "docs")
MIGRATIONS = SOURCE / "migrations"
VERSION = version("finishline-server")  # Read from the files of the installation, once.


@lru_cache
def code_version(commit: str | None) -> CodePart:
    """Return the version of this process, with this commit or else the checkout's."""
    is_checkout = (SOURCE / ".git").is_dir()
    return CodePart(version=VERSION, commit=commit or (commit_of(SOURCE) if is_checkout else None))
