"""The packages of a season in their order, for the version of an environment that is here."""

import re
from collections.abc import Iterator
from pathlib import Path

from finishline.cli.errors import CliError, ExitCode
from finishline.client.packages import read_folder
from finishline.rules.errors import RuleError
from finishline.rules.trainings.manifest import FILE
from finishline.rules.trainings.package import Package, read_package
from finishline.rules.verification.messages import PACKAGE_PREFIX


def season_packages(folder: Path, *, environment: str | None = None) -> Iterator[Package]:
    """The packages of a folder by name, each based on the one before. Raises CliError.

    With another `environment` than they name the manifests name it, and the hashes of their
    parents follow.
    """
    parent: Package | None = None
    for path in sorted(each for each in folder.glob("*") if each.is_dir()):
        files, problems = read_folder(path)
        text = files.get(FILE, b"").decode()
        if environment is not None:
            text = _named(text, "environment", environment)
        if parent is not None:
            text = _named(text, "based_on", f"{PACKAGE_PREFIX}{parent.sha256}")
        package, found = read_package(files | {FILE: text.encode()}, benchmarks=None)
        if package is None:
            raise _broken(path, [*problems, *found])
        yield package
        parent = package


def _named(manifest: str, field: str, value: str) -> str:
    return re.sub(rf'^{field} = "[^"]*"', f'{field} = "{value}"', manifest, flags=re.MULTILINE)


def _broken(path: Path, problems: list[RuleError]) -> CliError:
    told = "; ".join(str(each) for each in problems)
    return CliError(f"{path} breaks the rules of a package: {told}.", exit_code=ExitCode.REFUSED)
