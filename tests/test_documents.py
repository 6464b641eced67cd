"""The documents beside the code: every record is in the index, and every named path exists."""

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs" / "decisions"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "._")
# `server/boards/rows.py`, `benchmarks/`: a path in code words, below one of our folders.
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)`")
# `server.base.error_answers`, a module; lines of the access log have a name of their own.
MODULE = re.compile(r"`(server(?:\.\w+)+)`(?<!`server\.access`)")
LINK = re.compile(r"\]\((?!https?:|mailto:|/)([^)#\s]+)(?:#[^)]*)?\)")
# Where a server keeps or a build writes: in no checkout.
MADE = ("var/", "runs/", "dist/", "secrets/", "build/")
# `benchmarks/ID.toml`, `reference_models/mine.py`: names that stand for others.
PLACEHOLDER = re.compile(r"(?!README)[A-Z]{2,}|mine\.")


def named_paths(text):
    """Paths of the repository that a document names in code words."""
    for path in PATH.findall(text):
        if not path.startswith(MADE) and not PLACEHOLDER.search(path.rpartition("/")[2]):
            yield path


def test_the_index_lists_every_record_by_its_number():
    index = (RECORDS / "README.md").read_text()
    rows = re.findall(r"^\| \[(\d{4})\]\(([\w.-]+\.md)\) \| (.+) \|$", index, re.MULTILINE)
    there = sorted(path.name for path in RECORDS.glob("0*.md"))

    assert [name for _, name, _ in rows] == there
    assert all(name.startswith(f"{number}-") for number, name, _ in rows)
    assert len({number for number, _, _ in rows}) == len(rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_that_a_document_names_is_there(page):
    text = page.read_text()
    missing = [path for path in named_paths(text) if not (ROOT / path).exists()]
    links = [link for link in LINK.findall(text) if not (page.parent / link).exists()]

    modules = [name for name in MODULE.findall(text) if find_spec(name) is None]

    assert missing == []
    assert links == []
    assert modules == []


def test_names_in_the_table_of_additions_stand_in_the_files_beside_them():
    part = (ROOT / "CONTRIBUTING.md").read_text().partition("## How to add")[2]
    rows = [row for row in part.partition("\n## ")[0].splitlines() if row.startswith("| ")]
    gone = {
        name: row.split("|")[1].strip()
        for row in rows
        for name in re.findall(r"`([A-Za-z_]\w+)`", row)
        if not any(name in (ROOT / path).read_text() for path in named_paths(row) if "." in path)
    }

    assert len(rows) > 10
    assert gone == {}


def test_a_path_that_is_gone_is_found():
    assert list(named_paths("`server/gone.py` and `var/x` and `benchmarks/ID.toml`")) == [
        "server/gone.py"
    ]


def test_ci_runs_targets_that_the_makefile_has():
    workflows = (ROOT / ".github/workflows").glob("*.yml")
    jobs = [job for path in workflows for job in yaml.safe_load(path.read_text())["jobs"].values()]
    steps = [step.get("run", "") for job in jobs for step in job["steps"]]
    used = set(re.findall(r"^make ([\w-]+)$", "\n".join(steps), re.MULTILINE))
    targets = set(re.findall(r"^([\w-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert {"install", "lint", "test", "wheels", "test-vision", "chaos"} <= used <= targets


def test_the_versions_told_are_that_of_the_distributions():
    """Between releases a number of development, so that no build calls itself a release."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    manifests = (ROOT / "deploy" / "kubernetes.md").read_text()
    images = re.findall(r"/finishline-worker:(\S+)", manifests)

    assert citation["version"] == version
    assert citation["license"] == "Apache-2.0"
    assert set(images) == {version}


def test_the_changelog_begins_with_the_version_or_what_comes_after_it():
    version = Version(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if version.is_devrelease:
        assert heads.pop(0) == "Unreleased"
    released = [re.fullmatch(r"(\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)", head) for head in heads]
    newest = [(Version(each[1]), each[2]) for each in released if each is not None]

    assert len(newest) == len(released)
    assert newest == sorted(newest, reverse=True)
    assert newest[0][0] < version if version.is_devrelease else newest[0][0] == version


def test_hooks_and_forms_of_issues_are_yaml():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repo in hooks["repos"] for hook in repo["hooks"]]
    forms = [
        yaml.safe_load(path.read_text())
        for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")
        if path.name != "config.yml"
    ]

    assert "make lint" in entries
    assert all({"name", "description", "body"} <= form.keys() for form in forms)


def test_the_example_of_a_package_is_that_of_the_command():
    guide = (ROOT / "docs" / "trainings.md").read_text()
    template = ROOT / "finishline" / "rules" / "trainings" / "template" / "train.py.example"
    assert f"```python\n{template.read_text()}```" in guide
