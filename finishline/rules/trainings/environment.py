"""Environments of training packages: a name that says which packages, and in which version.

`numpy-2.4` or `torch-2.13-cpu`: a family, its version, and for torch the device it was built for. A
worker offers those that are installed on it, with the exact versions of all their packages.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from finishline.rules.proof.hash_chain import sha256_of

_NAME = re.compile(r"(?P<family>[a-z]+)-(?P<version>\d+\.\d+)(-(?P<build>cpu|cuda|rocm))?")


@dataclass(frozen=True)
class Family:
    """Packages that are installed together: distributions, import names, modules loaded early."""

    distributions: tuple[str, ...]
    imports: tuple[str, ...]
    preload: tuple[str, ...] = ()


FAMILIES: Mapping[str, Family] = {
    "numpy": Family(("numpy",), ("numpy",)),
    "torch": Family(
        ("torch", "numpy"),
        ("torch", "numpy", "sympy", "networkx"),
        preload=("torch", "torch._dynamo"),
    ),
}
EXAMPLES = "numpy-2.4 or torch-2.13-cpu"


@dataclass(frozen=True)
class Environment:
    """An environment as a worker has it: exact versions of its packages, and of Python."""

    name: str
    python: str
    packages: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """Hash over name, Python's minor version and the packages' versions, in hex."""
        return sha256_of([self.name, self.python, sorted(self.packages.items())])


def family_of(environment: str) -> Family | None:
    """The family of an environment by its name, or None if it names none."""
    match = _NAME.fullmatch(environment)
    return FAMILIES.get(match["family"]) if match is not None else None


def closest_environment(environment: str, installed: Iterable[str]) -> str | None:
    """The installed environment of the same family and build: this version, else the newest.

    For packages that are shipped with the code: they name the environment they were measured in
    and train in any version. An entry trains in the one it names, or nowhere.
    """
    wanted = _NAME.fullmatch(environment)
    found = [match for name in installed if (match := _NAME.fullmatch(name)) is not None]
    alike = [
        match
        for match in found
        if wanted is not None and match.group("family", "build") == wanted.group("family", "build")
    ]
    if not alike:
        return None
    return max(alike, key=lambda match: (match[0] == environment, _numbers(match["version"])))[0]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
