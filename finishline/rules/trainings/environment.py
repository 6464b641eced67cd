"""Environments of code submissions, such as `numpy-2.4` or `torch-2.13-cpu`.

The name has a family, its version, and for torch the device it was built for. One that ends in
`-gcc` has a C++ compiler too. A worker offers those that are installed on it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from finishline.rules.canonical import sha256_of

_NAME = re.compile(
    r"(?P<family>[a-z]+)-(?P<version>\d+\.\d+)(-(?P<build>cpu|cuda|rocm))?(-(?P<compiler>gcc))?"
)


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
ALIKE = ("family", "build", "compiler")
EXAMPLES = "numpy-2.4 or torch-2.13-cpu"
COMPILING = "torch-2.13-cpu-gcc"


@dataclass(frozen=True)
class Environment:
    """An environment as a worker has it: exact versions of packages, Python and compiler."""

    name: str
    python: str
    packages: Mapping[str, str]
    compiler: str | None = None

    @property
    def sha256(self) -> str:
        """Hash over name, Python's minor version, and versions of packages and compiler, in hex."""
        compiler = [] if self.compiler is None else [self.compiler]
        return sha256_of([self.name, self.python, sorted(self.packages.items()), *compiler])


def family_of(environment: str) -> Family | None:
    """The family of an environment by its name, or None if it names none."""
    match = _NAME.fullmatch(environment)
    return FAMILIES.get(match["family"]) if match is not None else None


def has_compiler(environment: str) -> bool:
    """Whether the name of an environment says that it has a compiler of C++."""
    match = _NAME.fullmatch(environment)
    return match is not None and match["compiler"] is not None


def closest_environment(environment: str, installed: Iterable[str]) -> str | None:
    """The installed environment of equal family, build and compiler: this version, else the newest.

    For packages that are shipped with the code: they name the environment they were measured in
    and train in any version. An entry trains in the one it names, or nowhere.
    """
    wanted = _NAME.fullmatch(environment)
    if wanted is None:
        return None
    alike = [
        match
        for name in installed
        if (match := _NAME.fullmatch(name)) and match.group(*ALIKE) == wanted.group(*ALIKE)
    ]
    newest = max(
        alike,
        key=lambda match: (match[0] == environment, *map(int, match["version"].split("."))),
        default=None,
    )
    return newest and newest[0]
