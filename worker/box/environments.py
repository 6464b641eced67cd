"""The environments that this host offers to packages: the families installed here."""

import functools
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata

from finishline.rules.trainings.environment import FAMILIES, Environment
from worker.box.compiler import gcc_version
from worker.box.packages import requirements_of


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
