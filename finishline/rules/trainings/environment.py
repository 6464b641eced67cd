"""Environments of code submissions, such as `numpy-2.4` or `torch-2.13-cpu`.

The name has a family, its version, and for torch the device it was built for. One that ends in
`-gcc` has a C++ compiler too. A worker offers those that are installed on it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

NAME = re.compile(
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
EXAMPLES = "numpy-2.4 or torch-2.13-cpu"
COMPILING = "torch-2.13-cpu-gcc"


def family_of(environment: str) -> Family | None:
    """The family of an environment by its name, or None if it names none."""
    match = NAME.fullmatch(environment)
    return FAMILIES.get(match["family"]) if match is not None else None


def has_compiler(environment: str) -> bool:
    """Whether the name of an environment says that it has a compiler of C++."""
    match = NAME.fullmatch(environment)
    return match is not None and match["compiler"] is not None
