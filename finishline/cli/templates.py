"""Examples that `init` commands write into a folder of the user's."""

from collections.abc import Callable, Iterator
from importlib import resources
from importlib.metadata import PackageNotFoundError, version
from importlib.resources.abc import Traversable
from pathlib import Path

from finishline.cli.errors import CliError, ExitCode

ENVIRONMENT = "numpy-2.4"
SUFFIX = ".example"


def write_template(package: str, folder: Path, change: Callable[[str], str]) -> list[str]:
    """Write the example files of a package into a new or empty folder; returns their names.

    Their environment is the one installed here. Raises CliError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CliError(f"{folder} exists. Choose a new or empty folder.", exit_code=ExitCode.USAGE)
    written = []
    try:
        for name, source in _examples(resources.files(package)):
            text = source.read_text(encoding="utf-8").replace(ENVIRONMENT, _numpy())
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(change(text), encoding="utf-8")
            written.append(name)
    except OSError as error:
        raise CliError(
            f"Cannot write {error.filename} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error
    return written


def _examples(folder: Traversable, path: str = "") -> Iterator[tuple[str, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda one: one.name):
        if each.is_dir():
            yield from _examples(each, f"{path}{each.name}/")
        elif each.name.endswith(SUFFIX):
            yield path + each.name.removesuffix(SUFFIX), each


def _numpy() -> str:
    """The environment of numpy that is installed here, else the template's."""
    try:
        return f"numpy-{'.'.join(version('numpy').split('.')[:2])}"
    except PackageNotFoundError:
        return ENVIRONMENT
