"""Two distributions of one version: their requirements, and the pinned versions."""

import ast
import os
import re
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
OURS = {"finishline", "server", "worker", "web", "reference_models", "migrations"}
HEAVY = {"torch", "plotly", "scipy", "numpy", "celery", "sqlalchemy", "fastapi", "redis", "alembic"}
BINARY = (".png", ".gz", ".zip", ".pyc")
# Under fastapi, boto3, pydantic, celery, jinja2, torchvision and lightning. psutil comes with the
# server that `finishline up` starts. setuptools builds both.
UNDER = {
    "starlette", "botocore", "pydantic-core", "annotated-types", "kombu", "markupsafe", "pil",
    "psutil", "pytorch-lightning", "setuptools",
}  # fmt: skip
# Of the build that fits torch's on a machine, and of no use without its driver; or a participant's.
NOT_PINNED = {"torchvision", "nvidia-ml-py", "lightning", "transformers"}


def project(path):
    return tomllib.loads((ROOT / path).read_text())["project"]


PARTICIPANT, SERVER = project("finishline/pyproject.toml"), project("pyproject.toml")


def names(requirements):
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def files():
    """Text files of the checkout, without environments, caches and what a server keeps."""
    ignored = {".git"} | {
        line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines()
    }
    for folder, folders, found in os.walk(ROOT):
        folders[:] = [each for each in folders if not {each, f"*{Path(each).suffix}"} & ignored]
        yield from (Path(folder) / each for each in found if not each.endswith(BINARY))


def imported_by(path):
    """Top-level modules of others that a file's code imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found - OURS - set(sys.stdlib_module_names)


def imported(folder):
    """The same of all files of a folder."""
    return {module for path in folder.rglob("*.py") for module in imported_by(path)}


def installed_with(requirements):
    """All that pip installs for these requirements, with what they ask for in turn."""
    found = {"finishline-tta"}
    asked = [Requirement(each) for each in requirements]
    while asked:
        wanted = asked.pop()
        name = canonicalize_name(wanted.name)
        if name not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            found.add(name)
            asked += [Requirement(each) for each in distribution(name).requires or []]
    return found


def test_the_server_asks_for_the_participants_distribution_of_its_own_version():
    own = f"finishline-tta[stats]=={PARTICIPANT['version']}"
    assert (PARTICIPANT["name"], SERVER["name"]) == ("finishline-tta", "finishline-server")
    assert PARTICIPANT["version"] == SERVER["version"]
    assert own in SERVER["dependencies"]


def test_a_participant_installs_little():
    asked = names(PARTICIPANT["dependencies"])
    assert len(asked) <= 12
    assert asked & HEAVY == set()
    assert names(PARTICIPANT["optional-dependencies"]["stats"]) == {"numpy", "scipy"}


def test_every_package_of_the_participants_is_listed():
    listed = tomllib.loads((ROOT / "finishline/pyproject.toml").read_text())
    files = [path.relative_to(ROOT / "finishline") for path in (ROOT / "finishline").rglob("*.py")]
    # `pip install ./finishline` leaves a copy of all of them in build/.
    packages = [ROOT / "finishline" / file.parent for file in files if file.parts[0] != "build"]
    there = {package.relative_to(ROOT).as_posix().replace("/", ".") for package in packages}
    there.add("finishline.files.benchmarks")  # Of the folder benchmarks/.
    assert sorted(there) == listed["tool"]["setuptools"]["packages"]


@pytest.mark.parametrize("folder", ["finishline", "server", "web", "worker", "reference_models"])
def test_every_import_is_of_a_distribution_that_is_asked_for(folder):
    lists = [PARTICIPANT["dependencies"], *PARTICIPANT["optional-dependencies"].values()]
    if folder != "finishline":
        extras = SERVER["optional-dependencies"]
        lists += [SERVER["dependencies"], *(extras[each] for each in extras if each != "test")]
    asked = names([each for listed in lists for each in listed])
    by_module = packages_distributions()
    for module in sorted(imported(ROOT / folder)):
        made_by = {canonicalize_name(each) for each in by_module.get(module, [module])}
        assert made_by & (asked | UNDER), (
            f"{folder} imports {module}, of {', '.join(sorted(made_by))}"
        )


def test_a_server_installs_all_that_its_broker_imports():
    """The transport for Redis imports packages that kombu asks for by an extra alone."""
    transport = find_spec("kombu.transport.redis")
    assert transport is not None
    assert transport.origin is not None
    by_module = packages_distributions()
    needed = {
        canonicalize_name(name)
        for module in imported_by(Path(transport.origin))
        for name in by_module[module]
    }
    assert needed <= installed_with(SERVER["dependencies"] + PARTICIPANT["dependencies"])


def test_the_licence_goes_with_both():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License\n" in text
    assert "Version 2.0, January 2004" in text
    assert (ROOT / "finishline" / "LICENSE").read_text() == text
    assert PARTICIPANT["license"] == SERVER["license"] == "Apache-2.0"


def test_no_file_names_a_registry_or_installs_a_bare_finishline():
    """That name belongs to another project in the public index."""
    host = re.compile(r"pypi\.org|pythonhosted\.|test\.pypi")
    bare = re.compile(r"(?:pip|uv|pipx)[\w -]* install [^\n`]*?(?<![\w./-])finishline(?![\w/-])")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files()
        if path != Path(__file__)
        for pattern in (host, bare)
        for match in pattern.finditer(path.read_text(errors="replace"))
    ]
    assert found == []


def test_what_the_project_asks_for_is_pinned_within_its_range():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    pins = {canonicalize_name(name): Version(version) for name, version in pairs}
    # A local version, as in 2.13.0+cpu, is not in the registry.
    assert {name: pin for name, pin in pins.items() if pin.local is not None} == {}
    for listed in (PARTICIPANT, SERVER):
        extras = listed["optional-dependencies"].values()
        for requirement in map(Requirement, sum(extras, listed["dependencies"])):
            name = canonicalize_name(requirement.name)
            if name not in NOT_PINNED | {"finishline-server", "finishline-tta"}:
                assert requirement.specifier.contains(pins[name]), requirement
