"""The pinned versions can be installed by anybody, and are what the project asks for."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

CHECKOUT = Path(__file__).parents[2]
# Of the build that fits torch's on a machine, and of no use without its driver.
NOT_PINNED = {"torchvision", "nvidia-ml-py"}


def read_pins() -> dict[str, Version]:
    """Version by name, of each line that is no comment."""
    lines = (CHECKOUT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def test_no_pin_is_of_a_build_that_only_one_machine_has() -> None:
    """A local version, as in 2.13.0+cpu, is not in the registry."""
    assert {name: pin for name, pin in read_pins().items() if pin.local is not None} == {}


def test_what_the_project_asks_for_is_pinned_within_its_range() -> None:
    asked = []
    for path in ("pyproject.toml", "finishline/pyproject.toml"):
        project = tomllib.loads((CHECKOUT / path).read_text())["project"]
        extras = project["optional-dependencies"].values()
        asked += [Requirement(each) for each in sum(extras, project["dependencies"])]
    pins = read_pins()

    for requirement in asked:
        name = canonicalize_name(requirement.name)
        if name not in NOT_PINNED | {"finishline-server", "finishline-tta"}:
            assert requirement.specifier.contains(pins[name]), requirement
