"""A temporary folder with the files of a package, for a box to show to its training."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def package_folder(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A folder with these files, which every user of this machine may read; gone afterwards.

    Raises ValueError for a name that leads out of it, OSError for one that no file has.
    """
    with tempfile.TemporaryDirectory(prefix="finishline-package-") as name:
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
