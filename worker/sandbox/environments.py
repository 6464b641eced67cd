"""The environments that this host offers to packages, and orders for packages in them."""

import functools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from finishline.rules.canonical import sha256_of
from finishline.rules.trainings.manifest import FAMILIES, NAME, family_of
from worker.sandbox.order import AnyBackend, Order
from worker.sandbox.packages import gcc_version, requirements_of
from worker.sandbox.protocol import Limits

ALIKE = ("family", "build", "compiler")


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

    def order(
        self,
        package: Path,
        *,
        module: str,
        limits: Limits,
        backend: AnyBackend = "bwrap",
        gpus: Sequence[str] = (),
    ) -> Order:
        """How to run a package of this environment."""
        family = family_of(self.name)
        return Order(
            package=package.resolve(),
            module=module,
            packages=dict(self.packages),
            preload=family.preload if family is not None else (),
            limits=limits,
            backend=backend,
            gpus=gpus,
            has_compiler=self.compiler is not None,
        )


def closest_environment(environment: str, installed: Iterable[str]) -> str | None:
    """The installed environment of equal family, build and compiler: this version, else the newest.

    For packages that are shipped with the code: they name the environment they were measured in
    and train in any version. An entry trains in the one it names, or nowhere.
    """
    wanted = NAME.fullmatch(environment)
    if wanted is None:
        return None
    alike = [
        match
        for name in installed
        if (match := NAME.fullmatch(name)) and match.group(*ALIKE) == wanted.group(*ALIKE)
    ]
    newest = max(
        alike,
        key=lambda match: (match[0] == environment, *map(int, match["version"].split("."))),
        default=None,
    )
    return newest and newest[0]


@functools.cache
def installed_environments(*, compiler: bool = False) -> Mapping[str, Environment]:
    """Environments by name, with the exact versions of all their packages.

    With `compiler` each comes once more with gcc, if it is here.
    """
    found: dict[str, Environment] = {}
    gcc = gcc_version() if compiler else None
    for family, made in FAMILIES.items():
        try:
            version = metadata.version(made.distributions[0])
        except metadata.PackageNotFoundError:
            continue
        name = f"{family}-{'.'.join(version.split('.')[:2])}{_build(family, version)}"
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        found[name] = Environment(name, python, requirements_of(made.distributions))
        if gcc is not None:
            found[f"{name}-gcc"] = replace(found[name], name=f"{name}-gcc", compiler=f"gcc {gcc}")
    return found


def _build(family: str, version: str) -> str:
    if family != "torch":
        return ""
    local = version.partition("+")[2]
    kind = "cpu" if local == "cpu" else "rocm" if local.startswith("rocm") else "cuda"
    return f"-{kind}"
