"""`finishline run`: an example is made, checked and trained in a box on this machine."""

import math
import re

import pytest


@pytest.fixture
def package(tmp_path, finishline):
    folder = tmp_path / "mine"
    assert finishline("init", str(folder)).code == 0
    return folder


@pytest.fixture
def other(package, finishline):
    """The example again, under another title."""
    folder = package.with_name("other")
    finishline("init", str(folder))
    manifest = folder / "training.toml"
    manifest.write_text(manifest.read_text().replace("Random cosine", "Other cosine"))
    return folder


def test_the_example_breaks_no_rule(package, finishline):
    for left_by_tools in (".DS_Store", ".git/config", "__pycache__/train.pyc"):
        (package / left_by_tools).parent.mkdir(exist_ok=True)
        (package / left_by_tools).write_bytes(b"\0")

    ran = finishline("check", str(package), "--json")

    assert ran.code == 0
    found = ran.json()
    assert sorted(found["files"]) == ["train.py", "training.toml"]
    assert found["bytes"] == sum(found["files"].values())
    assert found["manifest"]["benchmark"] == "digits"


def link(package):
    (package / "notes.txt").symlink_to("/etc/passwd")


def half_manifest(package):
    (package / "training.toml").write_text("schema = 1\nbenchmark\n")


def large(package):
    for number in range(3):
        (package / f"part{number}.txt").write_text("x\n" * 43_700)


@pytest.mark.parametrize(
    ("damage", "file", "line", "field", "expected"),
    [
        (link, "notes.txt", None, None, "a regular file"),
        (half_manifest, "training.toml", 2, None, "a TOML file"),
        (large, None, None, None, "at most 262144 bytes"),
    ],
)
def test_bad_package_is_refused(package, finishline, damage, file, line, field, expected):
    damage(package)

    ran = finishline("check", str(package), "--json")

    assert ran.code == 1
    problems = ran.error()["problems"]
    places = [tuple(each[of] for of in ("file", "line", "field", "expected")) for each in problems]
    assert (file, line, field, expected) in places


def test_without_any_definition_a_server_decides_about_the_benchmark(package, tmp_path, finishline):
    nowhere = ("--benchmarks-dir", str(tmp_path / "none"))
    ran = finishline("check", str(package), *nowhere)
    assert (ran.code, "A server checks besides" in ran.out) == (0, True)


@pytest.mark.usefixtures("boxed")
def test_the_example_reaches_the_target_in_a_box_and_without_one(package, finishline):
    """Equal seeds and data give equal qualities."""
    (package / "train.py").chmod(0o600)  # Another user than the box's.

    def trained(nonce, *more):
        given = ("--runs", "2", "--seed", "3", "--nonce", nonce * 64, *more)
        ran = finishline("run", str(package), *given, "--json")
        found = ran.json()
        assert (ran.code, found["nonce"]) == (0, nonce * 64), found
        for run in found["runs"]:
            assert (run["status"], run["quality"] >= 97.5) == ("reached", True)
            assert 0 < run["seconds"] <= run["ledger"]["train"] + run["ledger"]["eval"] + 1e-6
        return [run["quality"] for run in found["runs"]]

    assert trained("5") == trained("5", "--plain") != trained("6", "--plain")


@pytest.mark.usefixtures("boxed")
def test_two_packages_are_compared_in_turn_on_equal_seeds_and_data(package, other, finishline):
    given = ("--pairs", "3", "--nonce", "5" * 64)
    ran = finishline("compare", str(other), str(package), *given, "--json")

    found = ran.json()
    assert (ran.code, found["faster"], found["pairs"]) == (11, None, 3)
    assert found["a"]["title"] == "Other cosine features and one linear solve"
    pairs = list(zip(found["a"]["runs"], found["b"]["runs"], strict=True))
    for field in ("seed", "predictions_sha256"):
        assert [one[field] for one, _ in pairs] == [another[field] for _, another in pairs]
    ratios = [another["seconds"] / one["seconds"] for one, another in pairs]
    assert found["ratio"] == pytest.approx(math.prod(ratios) ** (1 / 3))
    assert found["low"] < found["ratio"] < found["high"]
    assert 0 < found["p"] <= 0.5


def slowed(folder, *, seconds):
    program = folder / "train.py"
    head = "def train(prepared, data, seed):\n"
    slow = f'{head}    __import__("time").sleep({seconds})\n'
    program.write_text(program.read_text().replace(head, slow))
    return folder


@pytest.mark.usefixtures("boxed")
def test_a_comparison_ends_early_and_its_exit_code_says_who_is_faster(package, other, finishline):
    slow = slowed(other, seconds=0.5)

    ran = finishline("compare", str(slow), str(package), "--plain")
    assert (ran.code, "B is faster." in ran.out) == (0, True), ran.out
    sentence = r"B takes 0\.\d\d times the time of A \(95 % .*, p = .*, [4-7] pairs\)"
    assert re.search(sentence, ran.out), ran.out

    swapped = finishline("compare", str(package), str(slow), "--plain", "--json")
    found = swapped.json()
    assert (swapped.code, found["faster"], found["ratio"] > 1) == (10, "a", True)
    assert 4 <= found["pairs"] <= 7


def test_a_program_that_fails_ends_a_comparison_and_is_named(package, other, finishline):
    program = other / "train.py"
    program.write_text(program.read_text() + "\nraise SystemExit(1)\n")
    ran = finishline("compare", str(package), str(other), "--plain")
    assert (ran.code, "B failed in pair 1" in ran.err) == (3, True), ran.err


def test_wrong_usage_is_told_before_anything_is_trained(package, other, finishline):
    manifest = other / "training.toml"
    manifest.write_text(manifest.read_text().replace('"digits"', '"teacher"'))
    for words, told in (
        (("init", str(package)), "Choose a new or empty folder"),
        (("run", str(package / "none"), "--plain"), "has no training.toml"),
        (("run", str(package), "--out", "x"), "--out: expected for a benchmark"),
        (("compare", f"sha256:{'a' * 64}", str(package), "--plain"), "a folder of yours"),
        (("compare", str(package), "s1"), "s1 is not a folder"),
        (("compare", str(other), str(package)), "is for teacher; expected digits"),
        (("run", str(package), "--seed", "4294967294"), "at most 4294967295"),
        (
            ("compare", str(package), str(package), "--benchmarks-dir", "/none"),
            "--benchmarks-dir /none is not a folder; expected one of benchmark definitions",
        ),
        (("run", str(package), "--benchmarks-dir", "/none"), "--benchmarks-dir /none is not a"),
        (("compare", "sha256:12", str(package)), "expected sha256: and 64 hex digits"),
        (("compare", str(package), str(package), "--pairs", "2"), "--pairs"),
    ):
        ran = finishline(*words)
        assert (ran.code, told in ran.err) == (2, True), words


@pytest.mark.parametrize("name", ["fashion", "teacher"])
def test_a_folder_named_like_a_benchmark_gets_its_reference(name, tmp_path, finishline):
    folder = tmp_path / name
    assert finishline("init", str(folder)).code == 0
    ran = finishline("check", str(folder), "--json")
    assert (ran.code, ran.json()["manifest"]["benchmark"]) == (0, name)
    assert "exists. Choose a new" in finishline("init", str(folder)).err


@pytest.mark.usefixtures("boxed")
def test_a_package_that_raises_is_told_in_a_sentence_with_its_last_lines(package, finishline):
    with (package / "train.py").open("a") as file:
        file.write("\n\ndef prepare(task):\n    raise ValueError('no luck')\n")

    ran = finishline("run", str(package), "--runs", "1")

    assert (ran.code, "entry_died: the code raised an error" in ran.out) == (3, True)
    assert "ValueError: no luck" in ran.out


@pytest.mark.usefixtures("boxed")
def test_an_environment_that_is_not_here_is_named(package, finishline):
    manifest = package / "training.toml"
    text = re.sub(r"(?m)^environment.*", 'environment = "numpy-1.0"', manifest.read_text())
    manifest.write_text(text)

    ran = finishline("run", str(package))

    assert (ran.code, "environment numpy-1.0 is not installed here" in ran.err) == (1, True)


def test_a_task_of_ones_own_needs_no_box_with_its_package(tmp_path, finishline, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # There is no bubblewrap.
    finishline("benchmark", "init", str(tmp_path / "mine"))
    given = ("run", str(tmp_path / "mine" / "reference"), "--runs", "1", "--json")

    without = finishline(*given)
    assert (without.code, "bubblewrap" in without.err) == (4, True)
    ran = finishline(*given, "--plain")
    (run,) = ran.json()["runs"]
    assert (ran.code, run["status"], run["quality"] >= 90.0) == (0, "reached", True)
