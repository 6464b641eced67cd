"""`finishline score` and `finishline check` on trees of published files, on a real disk."""

import csv
import io
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from finishline.cli import records
from finishline.rules.archive.definitions import shipped_file
from tests.cli.test_check import BENCHMARKS
from tests.cli.test_participants import run_bare

if TYPE_CHECKING:
    from conftest import Finishline

ENTRY = {"version": "v1.0", "author": "A", "authorEmail": "a@example.org", "framework": "F",
         "model": "M", "hardware": "H", "timestamp": "2018-04-20"}  # fmt: skip
START = 1_700_000_000_000


def log(minutes: int, *, seed: int, status: str = "success") -> str:
    stop = START + minutes * 60_000
    lines: list[tuple[str, int, Any, dict[str, Any]]] = [
        ("submission_benchmark", START, "retinanet", {}),
        ("submission_division", START, "closed", {}),
        ("submission_org", START, "ACME", {}),
        ("seed", START, seed, {}),
        ("global_batch_size", START, 256, {}),
        ("run_start", START, None, {}),
        ("eval_accuracy", stop, 0.35, {"epoch_num": 4}),
        ("run_stop", stop, None, {"status": status}),
    ]
    return "".join(
        f":::MLLOG {json.dumps({'time_ms': ms, 'key': key, 'value': value, 'metadata': more})}\n"
        for key, ms, value, more in lines
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """One retinanet set of five runs, 10 to 14 minutes."""
    folder = tmp_path / "package"
    results = folder / "ACME" / "results" / "big" / "retinanet"
    results.mkdir(parents=True)
    for number in range(5):
        (results / f"result_{number}.txt").write_text(log(10 + number, seed=number))
    systems = folder / "ACME" / "systems"
    systems.mkdir()
    (systems / "big.json").write_text('{"division": "closed"}')
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two DAWNBench entries, of which one has no TSV."""
    folder = tmp_path / "dawnbench"
    train = folder / "CIFAR10" / "train"
    train.mkdir(parents=True)
    for name in ("good", "half"):
        (train / f"{name}.json").write_text(json.dumps(ENTRY))
    (train / "good.tsv").write_text("epoch\thours\ttop1Accuracy\n1\t0.5\t94.0\n")
    return folder


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_one_json_line_for_each_submission(
    finishline: "Finishline", package: Path, tree: Path
) -> None:
    ran = finishline("score", str(tree), str(package))
    assert (ran.code, ran.err) == (0, "")
    good, half, result = lines(ran.out)
    assert (good["path"], good["tta_seconds"]) == ("CIFAR10/train/good.json", 1800.0)
    assert (half["eligible"], half["problems"][0]["code"]) == (False, "missing_tsv")
    assert result["path"] == "ACME/results/big/retinanet"
    assert result["olympic_mean_seconds"] == 720.0


def test_records_as_csv_and_as_a_table(finishline: "Finishline", package: Path, tree: Path) -> None:
    both = str(tree), str(package)
    rows = list(csv.DictReader(io.StringIO(finishline("score", *both, "--format", "csv").out)))
    assert [row["path"] for row in rows] == [
        r["path"] for r in lines(finishline("score", *both).out)
    ]
    assert (rows[0]["tta_seconds"], rows[2]["rcp_verdict"]) == ("1800.0", "pass")
    table = finishline("score", *both, "--format", "table").out
    assert "ACME/results/big/retinanet" in table
    assert "5/5" in table


def test_names_from_strangers_are_no_formulas_in_csv(finishline: "Finishline", tree: Path) -> None:
    train = tree / "CIFAR10" / "train"
    (train / "good.json").rename(tree / "x")
    odd = tree / "=cmd" / "CIFAR10" / "train"
    odd.mkdir(parents=True)
    (odd / "a.json").write_text(json.dumps(ENTRY))
    rows = list(csv.DictReader(io.StringIO(finishline("score", str(tree), "--format", "csv").out)))
    assert "'=cmd/CIFAR10/train/a.json" in {row["path"] for row in rows}


def test_a_definition_of_the_folder_that_is_named_goes_before_the_shipped_one(
    finishline: "Finishline", package: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    shipped = shipped_file("mlperf-v5.1-retinanet")
    (own / shipped.name).write_bytes(shipped.read_bytes() + b"# Ours.\n")
    for named, text in ((shipped.parent, shipped), (own, own / shipped.name)):
        [record] = lines(finishline("score", str(package), "--benchmarks", str(named)).out)
        assert record["definition"]["sha256"] == sha256(text.read_bytes()).hexdigest()
    assert finishline("score", str(package), "--benchmarks", str(tmp_path)).code == 1


def test_the_points_may_be_pruned_or_all(finishline: "Finishline", package: Path) -> None:
    [pruned] = lines(finishline("score", str(package)).out)
    [full] = lines(finishline("score", str(package), "--rcp", "full").out)
    assert pruned["rcp"]["verdict"] == full["rcp"]["verdict"] == "pass"
    assert finishline("score", str(package), "--rcp", "some").code == 2


def test_a_path_inside_a_package_still_finds_its_system(
    finishline: "Finishline", package: Path
) -> None:
    inner = package / "ACME" / "results" / "big" / "retinanet"
    [record] = lines(finishline("score", str(inner)).out)
    assert (record["path"], record["organisation"], record["system"]) == (".", "ACME", "big")
    assert "missing_system" not in {problem["code"] for problem in record["problems"]}
    [single] = lines(finishline("score", str(inner / "result_3.txt")).out)
    assert single["runs"][0]["tta_seconds"] == 780.0


def test_links_pipes_and_folders_are_not_read(finishline: "Finishline", package: Path) -> None:
    results = package / "ACME" / "results" / "big" / "retinanet"
    (results / "result_5.txt").symlink_to("/etc/passwd")
    os.mkfifo(results / "result_6.txt")
    (results / "result_7.txt").mkdir()
    (package / "loop").symlink_to(package)
    [record] = lines(finishline("score", str(package)).out)
    refused = {p["file"][-12:] for p in record["problems"] if p["code"] == "not_a_regular_file"}
    assert refused == {"result_5.txt", "result_6.txt"}
    assert record["n_runs"] == 7


def test_a_name_that_is_not_text_is_told_and_hinders_nothing(
    finishline: "Finishline", package: Path
) -> None:
    odd = os.fsencode(package) + b"/O\xff\n/results/big/retinanet"
    Path(os.fsdecode(odd)).mkdir(parents=True)
    (Path(os.fsdecode(odd)) / "result_0.txt").write_text(log(10, seed=1))
    ran = finishline("score", str(package))
    assert ran.code == 0
    first, second = lines(ran.out)
    assert first["olympic_mean_seconds"] == 720.0
    assert {problem["code"] for problem in second["problems"]} >= {"not_a_regular_file"}


def test_what_is_not_there_or_holds_nothing_is_one_sentence(
    finishline: "Finishline", tmp_path: Path
) -> None:
    assert "Cannot read" in finishline("score", str(tmp_path / "gone")).err
    ran = finishline("score", str(tmp_path))
    assert (ran.code, ran.out) == (1, "")
    assert "No submission found" in ran.err


def test_a_fault_of_ours_hides_no_other_record(
    finishline: "Finishline", tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = records._score

    def faulty(submission: Any, reader: Any) -> Any:
        return whole(submission, reader) if "half" in submission.path else 1 / 0

    monkeypatch.setattr(records, "_score", faulty)
    first, second = lines(finishline("score", str(tree)).out)
    assert first["problems"][0]["code"] == "internal_error"
    assert second["path"] == "CIFAR10/train/half.json"


def test_check_lists_every_problem_and_its_place(
    finishline: "Finishline", package: Path, tree: Path
) -> None:
    assert finishline("check", str(package)).code == 0
    ran = finishline("check", str(tree))
    assert ran.code == 1
    assert "error: CIFAR10/train/half.json: no half.tsv beside it; expected a TSV" in ran.out
    bad = package / "ACME" / "results" / "big" / "retinanet" / "result_1.txt"
    text = bad.read_text()
    bad.write_text(text + ':::MLLOG {"time_ms": 1, "key": "note", "value": NaN}\n')
    ran = finishline("check", str(package), "--json")
    assert ran.code == 1
    document = ran.json()
    assert document["refused"] == ["ACME/results/big/retinanet"]
    [problem] = [p for p in document["problems"] if p["severity"] == "error"]
    assert (problem["line"], problem["code"]) == (9, "bad_json")
    assert problem["file"].endswith("retinanet/result_1.txt")


def test_check_takes_one_file_of_an_archive(
    finishline: "Finishline", package: Path, tree: Path
) -> None:
    train = tree / "CIFAR10" / "train"
    assert finishline("check", str(train / "good.json")).code == 0
    assert finishline("check", str(train / "good.tsv")).code == 0
    assert finishline("check", str(train / "half.json")).code == 1
    run = package / "ACME" / "results" / "big" / "retinanet" / "result_0.txt"
    assert finishline("check", str(run)).code == 0
    run.write_text(run.read_text().replace("run_stop", "run_start"))
    assert finishline("check", str(run)).code == 1


def test_score_needs_scipy_for_convergence_points_alone(
    package: Path, tree: Path, tmp_path: Path
) -> None:
    entries = run_bare(tmp_path, "score", tree, "--benchmarks", BENCHMARKS)
    results = run_bare(tmp_path, "score", package)

    assert entries.returncode == 0, entries.stderr
    assert "internal_error" not in entries.stdout
    assert results.returncode == 4
    assert results.stderr == (
        "error: Tests and intervals by Student's t need SciPy, which is not installed; "
        "install it with `pip install 'finishline-tta[stats]'`.\n"
    )
