"""Folders of the installed server: files that a checkout and a wheel hold in different places."""

import importlib.util
from pathlib import Path


def find_folder(package: Path, name: str) -> Path:
    """The folder `name` of the server: inside its package in a wheel, beside it in a checkout.

    The package is looked at first: in site-packages a folder `docs` beside it may be anybody's.
    """
    inside = package / "files" / name
    return inside if inside.is_dir() else package.parent / name


def installed_server() -> Path | None:
    """The package of finishline-server without importing it; None if it is not installed."""
    spec = importlib.util.find_spec("server")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).resolve().parent
    # Other projects have a package of that name too.
    return package if (package / "base" / "places.py").is_file() else None
