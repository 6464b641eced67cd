"""docs/own-benchmark.md, walked: its table and script become a benchmark that the check passes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from worker.sandbox.order import installed_environments

PAGE = (Path(__file__).parents[2] / "docs" / "own-benchmark.md").read_text()
MOST_ADDED = 20


def block(heading, language):
    part = PAGE.partition(f"### {heading}\n")[2]
    found = re.search(rf"^```{language}\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def script_and_package():
    """Both sides of the difference: the plain script, and the module of the package."""
    lines = block("reference/train.py", "diff").splitlines(keepends=True)
    before, after = ([each[1:] for each in lines if each[0] != side] for side in "+-")
    return "".join(before), "".join(after)


def set_fields(path, toml):
    """Replace the lines of these keys in a file that has each of them once."""
    text = path.read_text()
    for line in toml.splitlines():
        key = line.partition(" = ")[0]
        text, count = re.subn(
            rf'^{key} = (?:"""(?:.|\n)*?"""|.*)$', line.replace("\\", r"\\"), text, flags=re.M
        )
        assert count == 1, key
    path.write_text(text)


def test_a_script_becomes_a_package_by_few_added_lines():
    difference = block("reference/train.py", "diff").splitlines()
    added = sum(line.startswith("+") for line in difference)

    assert added <= MOST_ADDED
    assert f"becomes a code submission by {added} added lines" in PAGE


@pytest.mark.nightly
@pytest.mark.usefixtures("boxed")
def test_steps_of_the_page_make_a_benchmark(tmp_path, finishline, monkeypatch):
    for package in ("sklearn", "torch"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    assert finishline("benchmark", "init", "diabetes").code == 0
    subprocess.run([sys.executable, "-c", block("Data", "python")], check=True, timeout=60)
    folder = tmp_path / "diabetes"
    set_fields(folder / "benchmark.toml", block("benchmark.toml", "toml"))
    (folder / "task.py").write_text(block("task.py", "python"))
    script, module = script_and_package()
    (folder / "reference" / "train.py").write_text(module)
    here = next(name for name in installed_environments() if name.startswith("torch-"))
    manifest = block("reference/train.py", "toml").replace("torch-2.13-cpu", here)
    set_fields(folder / "reference" / "training.toml", manifest)

    ran = finishline("benchmark", "check", "diabetes", "--write", "--runs", "1", "--json")

    assert ran.code == 0, ran.err
    found = ran.json()
    assert [each["status"] for each in found["runs"]] == ["reached"]
    assert min(found["guess"]["qualities"]) > 55
    told = " ".join(found["warnings"])
    for sentence in re.findall(r"^warning: (.*?)(?= \.\.\.$|: 0| 0\.)", PAGE, re.MULTILINE):
        assert sentence in told
    plain = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert float(plain.stdout.split()[-1]) < 55
