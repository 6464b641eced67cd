"""The environments that this host offers to packages: the families installed here."""

import functools
import sys
from collections.abc import Mapping
from importlib import metadata

from finishline.rules.trainings.environment import FAMILIES, Environment
from worker.box.packages import requirements_of


@functools.cache
def installed_environments() -> Mapping[str, Environment]:
    """Environments by name, with the exact versions of all their packages."""
    found = {}
    for family, made in FAMILIES.items():
        try:
            version = metadata.version(made.distributions[0])
        except metadata.PackageNotFoundError:
            continue
        name = f"{family}-{'.'.join(version.split('.')[:2])}{_build(family, version)}"
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        found[name] = Environment(name, python, requirements_of(made.distributions))
    return found


def _build(family: str, version: str) -> str:
    if family != "torch":
        return ""
    local = version.partition("+")[2]
    kind = "cpu" if local == "cpu" else "rocm" if local.startswith("rocm") else "cuda"
    return f"-{kind}"
