"""Find folders of the installed server, in a checkout and in a wheel, and a checkout's commit."""

import importlib.util
import re
from pathlib import Path


def find_folder(package: Path, name: str) -> Path:
    """Find a folder of the server: in its package in a wheel, next to it in a checkout.

    The package comes first: in site-packages a folder `docs` next to it may belong to anybody.
    """
    inside = package / "files" / name
    return inside if inside.is_dir() else package.parent / name


def installed_server() -> Path | None:
    """Find the package of finishline-server without an import. None if it is not installed."""
    spec = importlib.util.find_spec("server")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).resolve().parent
    # Other projects have a package of this name too.
    return package if (package / "base" / "places.py").is_file() else None


COMMIT = re.compile(r"[0-9a-f]{40}")
REF = re.compile(r"ref: (refs/[A-Za-z0-9._/-]+)")
LARGEST_REFS = 4 * 1024 * 1024


def commit_of(folder: Path) -> str | None:
    """Return the commit of a checkout around a folder, None if its files name no commit.

    It runs no program on another user's folder, so changed files go unnoticed.
    """
    place = folder.resolve()
    git = next(
        (each / ".git" for each in (place, *place.parents) if (each / ".git").is_dir()), None
    )
    if git is None:
        return None
    named = [_text(git / "HEAD")]
    if (ref := REF.fullmatch(named[0])) and ".." not in ref[1].split("/"):
        packed = _text(git / "packed-refs").splitlines()
        named = [_text(git / ref[1])]
        named += [line[: -len(ref[1])].strip() for line in packed if line.endswith(f" {ref[1]}")]
    return next((each for each in named if COMMIT.fullmatch(each)), None)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            return opened.read(LARGEST_REFS).decode("utf-8", errors="replace").strip()
    except OSError:
        return ""
