"""`finishline training`: an example is made, checked and trained in a box on this machine."""

import json

import pytest

from finishline.cli.main import main


@pytest.fixture
def package(tmp_path, capsys):
    """The example package."""
    folder = tmp_path / "mine"
    assert main(["training", "init", str(folder)]) == 0
    capsys.readouterr()
    return folder


def test_the_example_breaks_no_rule(package, capsys):
    for left_by_tools in (".DS_Store", ".git/config", "__pycache__/train.pyc"):
        (package / left_by_tools).parent.mkdir(exist_ok=True)
        (package / left_by_tools).write_bytes(b"\0")

    assert main(["training", "check", str(package), "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert sorted(found["files"]) == ["train.py", "training.toml"]
    assert found["bytes"] == sum(found["files"].values())
    assert found["manifest"]["benchmark"] == "digits"


def test_init_leaves_a_folder_with_files_alone(package, capsys):
    before = (package / "train.py").read_bytes()

    assert main(["training", "init", str(package)]) == 2
    assert "Choose a new or empty folder" in capsys.readouterr().err
    assert (package / "train.py").read_bytes() == before


def link(package):
    (package / "notes.txt").symlink_to("/etc/passwd")


def binary(package):
    (package / "model.so").write_bytes(b"\x7fELF\0")


def shadow(package):
    (package / "json.py").write_text("x = 1\n")


def other_benchmark(package):
    manifest = package / "training.toml"
    manifest.write_text(manifest.read_text().replace('"digits"', '"imagenet"'))


def half_manifest(package):
    (package / "training.toml").write_text("schema = 1\nbenchmark\n")


def licenceless(package):
    manifest = package / "training.toml"
    lines = manifest.read_text().splitlines()
    manifest.write_text("\n".join("license = 3" if "license" in line else line for line in lines))


def large(package):
    for number in range(3):
        (package / f"part{number}.txt").write_text("x\n" * 43_700)


@pytest.mark.parametrize(
    ("damage", "file", "line", "field", "expected"),
    [
        (link, "notes.txt", None, None, "a regular file"),
        (binary, "model.so", None, None, ".py .toml .md .txt"),
        (shadow, "json.py", None, None, "another name"),
        (other_benchmark, "training.toml", 2, "benchmark", "digits or teacher"),
        (half_manifest, "training.toml", 2, None, "a TOML file"),
        (licenceless, "training.toml", 6, "license", "a text of 1 to 4000 characters"),
        (large, None, None, None, "at most 262144 bytes"),
    ],
)
def test_a_bad_package_is_refused_with_its_file_and_the_expected(
    package, capsys, damage, file, line, field, expected
):
    damage(package)

    assert main(["training", "check", str(package), "--json"]) == 1

    problems = json.loads(capsys.readouterr().err)["error"]["problems"]
    places = [tuple(each[of] for of in ("file", "line", "field", "expected")) for each in problems]
    assert (file, line, field, expected) in places


def test_without_any_definition_a_server_decides_about_the_benchmark(package, tmp_path, capsys):
    arguments = ["training", "check", str(package), "--benchmarks-dir", str(tmp_path / "none")]
    assert main(arguments) == 0
    assert "A server checks besides" in capsys.readouterr().out


def test_a_path_without_a_folder_is_wrong_usage(tmp_path, capsys):
    assert main(["training", "check", str(tmp_path / "none")]) == 2
    assert "expected a training package" in capsys.readouterr().err


@pytest.mark.usefixtures("boxed")
def test_the_example_reaches_the_target_in_a_box(package, capsys):
    (package / "train.py").chmod(0o600)  # Another user than the box's.
    nonce = "5" * 64

    code = main(["training", "run", str(package), "--runs", "2", "--nonce", nonce, "--json"])

    found = json.loads(capsys.readouterr().out)
    assert code == 0, found
    assert found["nonce"] == nonce
    assert [run["status"] for run in found["runs"]] == ["reached", "reached"]
    for run in found["runs"]:
        assert run["quality"] >= 97.5
        assert 0 < run["seconds"] <= run["ledger"]["train"] + run["ledger"]["eval"] + 1e-6


@pytest.mark.usefixtures("boxed")
def test_equal_seeds_and_data_give_equal_qualities_in_a_box_and_without_one(package, capsys):
    def qualities(nonce, *more):
        given = ["--runs", "2", "--seed", "3", "--nonce", nonce * 64, *more]
        main(["training", "run", str(package), *given, "--json"])
        return [run["quality"] for run in json.loads(capsys.readouterr().out)["runs"]]

    assert qualities("5") == qualities("5", "--plain") != qualities("6")


def test_only_a_package_of_ones_own_runs_without_a_box(package, capsys):
    given = ["training", "run", str(package), "--plain", "--compare", f"sha256:{'a' * 64}"]
    assert main(given) == 2
    assert "expected a folder of yours" in capsys.readouterr().err


@pytest.mark.usefixtures("boxed")
def test_two_packages_are_compared_in_turn_on_equal_seeds_and_data(package, tmp_path, capsys):
    other = tmp_path / "other"
    main(["training", "init", str(other)])
    manifest = other / "training.toml"
    manifest.write_text(manifest.read_text().replace("Random cosine", "Other cosine"))
    capsys.readouterr()
    given = ["--compare", str(other), "--runs", "2", "--nonce", "5" * 64]

    assert main(["training", "run", str(package), *given, "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    compared = found["compared_with"]
    assert compared["title"] == "Other cosine features and one linear solve"
    one, others = found["runs"], compared["runs"]
    assert [run["seed"] for run in one] == [run["seed"] for run in others]
    assert [run["predictions_sha256"] for run in one] == [
        run["predictions_sha256"] for run in others
    ]
    ratios = [b["seconds"] / a["seconds"] for a, b in zip(one, others, strict=True)]
    assert found["speed_up"]["ratio"] == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    assert found["speed_up"]["low"] < found["speed_up"]["ratio"] < found["speed_up"]["high"]


def test_a_package_that_cannot_be_compared_is_refused_before_anything_is_trained(
    package, tmp_path, capsys
):
    other = tmp_path / "other"
    main(["training", "init", str(other)])
    manifest = other / "training.toml"
    manifest.write_text(manifest.read_text().replace('"digits"', '"teacher"'))
    for given, told in (
        (["--compare", str(other)], "it is for teacher; expected digits"),
        (["--compare", "sha256:12"], "expected sha256: and 64 hex digits"),
        (["--compare", str(package), "--runs", "1"], "expected --runs of 2 or more"),
    ):
        assert main(["training", "run", str(package), *given]) == 2
        assert told in capsys.readouterr().err


@pytest.mark.usefixtures("boxed")
def test_a_package_that_raises_is_told_in_a_sentence_with_its_last_lines(package, capsys):
    with (package / "train.py").open("a") as file:
        file.write("\n\ndef prepare(task):\n    raise ValueError('no luck')\n")

    assert main(["training", "run", str(package), "--runs", "1"]) == 3

    told = capsys.readouterr().out
    assert "entry_died: the package raised an error" in told
    assert "ValueError: no luck" in told


@pytest.mark.usefixtures("boxed")
def test_an_environment_that_is_not_here_is_named(package, capsys):
    manifest = package / "training.toml"
    text = "\n".join(
        'environment = "numpy-1.0"' if line.startswith("environment") else line
        for line in manifest.read_text().splitlines()
    )
    manifest.write_text(text)

    assert main(["training", "run", str(package)]) == 1
    assert "environment numpy-1.0 is not installed here" in capsys.readouterr().err


def test_a_task_of_ones_own_needs_no_box_with_its_package(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))  # There is no bubblewrap.
    main(["benchmark", "init", str(tmp_path / "mine")])
    capsys.readouterr()
    given = ["training", "run", str(tmp_path / "mine" / "reference"), "--runs", "1", "--json"]

    assert main(given) == 4
    assert "bubblewrap" in capsys.readouterr().err
    assert main([*given, "--plain"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["status"], run["quality"] >= 90.0) == ("reached", True)
