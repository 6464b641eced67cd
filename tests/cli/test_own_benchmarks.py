"""`finishline benchmark init|check|add|fetch`: from an empty folder to an entrant's own machine."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from finishline.cli import processes
from finishline.cli.commands import benchmark as own_benchmark
from finishline.cli.own_benchmarks import definition_file, laid_out
from tests.support.own_benchmarks import DEFINITION, own_files
from worker.sandbox import trial
from worker.sandbox.order import installed_environments


@pytest.fixture
def mine(tmp_path, finishline):
    folder = tmp_path / "mine"
    assert finishline("benchmark", "init", str(folder)).code == 0
    return folder


def small(folder):
    """A benchmark that is checked fast: 200 points, learnt by their sign."""
    task = b"""
import hashlib

import numpy as np


class Task:
    def __init__(self, x):
        y = (x[:, 0] > 0).astype(np.uint8)
        self.train, self.inputs = {"x": x[:100], "y": y[:100]}, {"x": x[100:]}
        self.answers, self.predictions = y[100:], ("uint8", (100,))

    def score(self, predictions):
        right = predictions == self.answers
        return 100 * right[:50].mean(), 100 * right[50:].mean()


def draw(nonce):
    seed = int.from_bytes(hashlib.sha256(nonce).digest(), "big")
    return Task(np.random.default_rng(seed).uniform(-1, 1, (200, 2)).astype(np.float32))
"""
    train = b"""
import numpy as np


def prepare(task): ...


def train(prepared, data, seed):
    yield lambda inputs: (np.asarray(inputs["x"])[:, 0] > 0).astype("uint8")
"""
    manifest = folder / "reference" / "training.toml"
    text = manifest.read_bytes()
    files = {
        "task.py": task, "reference/train.py": train, "reference/training.toml": text,
    }  # fmt: skip
    for name, content in own_files(DEFINITION, files).items():
        (folder / name).write_bytes(content)
    return folder


def test_init_leaves_a_folder_with_files_alone(mine, finishline):
    assert sorted(path.name for path in mine.iterdir()) == [
        "README.md", "benchmark.toml", "reference", "task.py",
    ]  # fmt: skip
    again = finishline("benchmark", "init", str(mine))
    assert (again.code, "Choose a new or empty folder" in again.err) == (2, True)


@pytest.mark.parametrize(("folder", "name"), [("My Set 2", "my-set-2"), ("2026", "mine")])
def test_the_folder_gives_the_id(folder, name, tmp_path, finishline):
    ran = finishline("benchmark", "init", str(tmp_path / folder), "--json")

    assert ran.json()["id"] == name
    for file in ("benchmark.toml", "reference/training.toml"):
        assert f'"{name}"' in (tmp_path / folder / file).read_text()
    assert finishline("check", str(tmp_path / folder / "reference")).code == 0


def test_a_changed_file_is_told_with_both_hashes_and_pinned_on_request(mine, finishline, standin):
    before = hashlib.sha256((mine / "task.py").read_bytes()).hexdigest()
    with (mine / "task.py").open("a") as file:
        file.write("# changed\n")
    (mine / "points.csv").write_text("1,2\n")
    after = hashlib.sha256((mine / "task.py").read_bytes()).hexdigest()

    ran = finishline("benchmark", "check", str(mine), "--json")

    assert ran.code == 1
    assert "--write" in ran.error()["message"]
    (problem,) = ran.error()["problems"]
    assert (problem["file"], problem["expected"]) == ("task.py", before)
    assert after in problem["message"]
    assert own_benchmark.write_hashes(mine)
    assert not own_benchmark.write_hashes(mine)
    written = (mine / "benchmark.toml").read_text()
    assert after in written
    assert '"points.csv"' in written
    assert "README" not in written


@pytest.mark.usefixtures("boxed")
def test_a_check_trains_the_reference_and_warns(mine, finishline):
    small(mine)

    ran = finishline("benchmark", "check", str(mine), "--runs", "2", "--json")

    assert ran.code == 0, ran.err
    found = ran.json()
    assert found["unpinned"] == []
    assert found["task"]["is_drawn"] is True
    assert [each["status"] for each in found["runs"]] == ["reached", "reached"]
    assert found["reference"]["second_half"] == 100
    told = " ".join(found["warnings"])
    assert "50 test items a half" in told
    assert "machine's noise ranks" in told


FIXED = (b"np.random.default_rng(seed)", b"np.random.default_rng(1)")
RANDOM = (b"np.random.default_rng(seed)", b"np.random.default_rng()")
LOWEST = (b"100 * right[:50].mean(), 100 * right[50:].mean()", b"95.0, 95.0")
BROKEN = (b"return Task", b"return task")
PICKED = (b"predictions == self.answers", b"np.eye(2)[predictions, self.answers]")
SHARE = (b"return 100 * right[:50].mean()", b"return 101")
SHAPES = (b"def draw", b'def shapes():\n    return {"train": {}}\n\n\ndef draw')
SHORT = (b'"uint8", (100,)', b'"uint8", (99,)')
DOUBLE = (b'"uint8", (100,)', b'"float64", (100,)')
NETWORK = (b"    seed =", b"    __import__('socket').getaddrinfo('a.example', 80)\n    seed =")
SILENT = (b"    seed =", b"    raise SystemExit\n    seed =")


@pytest.mark.usefixtures("boxed")
@pytest.mark.parametrize(
    ("change", "message", "line", "field"),
    [
        (FIXED, "draws of different nonces are equal", None, "draw"),
        (RANDOM, "two draws of one nonce differ", None, "draw"),
        (LOWEST, "constant (0) predictions reach the target with 95", None, "score"),
        (BROKEN, "the task's module failed: NameError", 20, "draw"),
        (PICKED, "the task's module failed: IndexError", 14, "score"),
        (SHARE, "score() gave 101 and", None, "score"),
        (SHAPES, "the task's module failed: KeyError: 'inputs'", None, "draw"),
        (SHORT, "the task's module failed: ValueError", 14, "score"),
        (DOUBLE, "predictions of float64", None, "predictions"),
        (NETWORK, "the task's module failed: socket.gaierror", 19, "draw"),
        (SILENT, "the task's module failed: it ended in silence", None, "draw"),
    ],
)
def test_a_task_that_breaks_a_rule_is_told(change, message, line, field, mine, finishline):
    task = small(mine) / "task.py"
    assert change[0] in task.read_bytes()
    task.write_bytes(task.read_bytes().replace(*change))

    ran = finishline("benchmark", "check", str(mine), "--write", "--json")

    assert ran.code == 1, ran.err
    (problem,) = ran.error()["problems"]
    assert message in problem["message"]
    assert (problem["file"], problem["line"], problem["field"]) == ("task.py", line, field)
    assert problem["expected"]


@pytest.mark.usefixtures("boxed")
def test_a_slow_draw_is_told(mine, monkeypatch, capsys):
    files = {path.name: path.read_bytes() for path in small(mine).glob("*.*")}
    monkeypatch.setattr(trial, "MOST_SECONDS", 0)

    with definition_file("mine", laid_out("mine", files.pop("benchmark.toml"), files)) as file:
        assert trial.main([str(file)]) == 0

    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["kind"], told["field"], told["expected"]) == ("problem", "draw", "at most 0 s")


@pytest.mark.usefixtures("boxed")
def test_a_reference_that_misses_is_exit_code_3(mine, finishline):
    train = small(mine) / "reference" / "train.py"
    train.write_bytes(train.read_bytes().replace(b"> 0", b"> 0.5"))

    ran = finishline("benchmark", "check", str(mine), "--write", "--runs", "1")

    assert ran.code == 3
    told = " ".join(ran.out.split())
    assert "0 of 1 run of the reference reached top-1 accuracy 90" in told
    assert "(benchmark.toml line 16, field target.value; expected a target that every" in told


def test_check_says_what_it_wanted(mine, finishline, tmp_path):
    (tmp_path / "empty").mkdir()
    expected = "expected the folder of a benchmark"
    for path, told in (
        (tmp_path / "empty", f"empty has no benchmark.toml; {expected}: benchmark.toml, task.py"),
        (mine / "benchmark.toml", f"benchmark.toml is a file; {expected}, such as {mine}."),
        (tmp_path / "none", f"none is not here; {expected}."),
    ):
        ran = finishline("benchmark", "check", str(path))
        assert (ran.code > 0, told in ran.err) == (True, True), ran.err
        assert "Hint: `finishline benchmark init FOLDER`" in ran.err


def test_add_sends_what_is_pinned(mine, finishline, standin):
    standin.answer("POST /api/v1/benchmarks", {"id": "mine"}, status=201)
    ran = finishline("benchmark", "add", str(mine), "--reason", "a course")
    assert ran.code == 0, ran.err
    body = standin.asked[-1].body
    for name in ("benchmark.toml", "task.py", "reference/train.py", "reference/training.toml"):
        assert f'filename="{name}"'.encode() in body
    assert (b"README" in body, b"a course" in body) == (False, True)


@pytest.mark.parametrize("changed", [False, True])
def test_fetch_writes_task_and_data(finishline, standin, tmp_path, monkeypatch, changed):
    monkeypatch.chdir(tmp_path)
    fetched, files = tmp_path / "benchmarks", own_files()
    standin.answer("GET /api/v1/benchmarks/mine.toml", files["benchmark.toml"])
    for name in files.keys() - {"benchmark.toml"}:
        content = b"other" if changed else files[name]
        standin.answer(f"GET /api/v1/benchmarks/mine/files/{name}", content)
    ran = finishline("benchmark", "fetch", "mine", "--json")
    assert (ran.code, fetched.exists()) == (int(changed), not changed)
    if changed:
        assert "its SHA-256 is" in ran.err
        return
    for name, content in files.items():
        path = fetched / ("mine.toml" if name == "benchmark.toml" else f"mine/{name}")
        assert path.read_bytes() == content
    package = tmp_path / "package"
    assert finishline("init", str(package)).code == 0
    manifest = package / "training.toml"
    manifest.write_text(manifest.read_text().replace('"digits"', '"mine"'))
    assert finishline("check", str(package)).code == 0


def test_run_refuses_changed_task_and_id(mine, finishline, monkeypatch):
    monkeypatch.setattr(processes, "spawn", lambda *_, **__: pytest.fail("started"))
    run = ("run", str(mine / "reference"), "--json")
    task = (mine / "task.py").read_text()
    (mine / "task.py").write_text(task + "# changed\n")
    assert finishline(*run).error()["problems"][0]["file"] == "task.py"

    (mine / "task.py").write_text(task)
    for file in (mine / "benchmark.toml", mine / "reference" / "training.toml"):
        file.write_text(file.read_text().replace('"mine"', '"../../x"', 1))
    ran = finishline(*run)
    assert (ran.code, ran.error()["problems"][0]["field"]) == (1, "id")


def test_a_benchmark_beside_the_package_is_found_by_its_folder(finishline, tmp_path, monkeypatch):
    finishline("benchmark", "init", str(tmp_path / "other"))
    finishline("init", str(tmp_path / "package"))
    manifest = tmp_path / "package" / "training.toml"
    manifest.write_text(manifest.read_text().replace('"digits"', '"other"'))
    check = ("check", str(tmp_path / "package"))

    assert finishline(*check).code == 1
    monkeypatch.chdir(tmp_path)
    assert finishline(*check).code == 0
    monkeypatch.chdir("/")
    assert finishline(*check, "--benchmarks-dir", str(tmp_path)).code == 0


# docs/own-benchmark.md, walked: its table and script become a benchmark that the check passes.
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
