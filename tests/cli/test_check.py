"""`finishline check`: the rules alone, on real benchmark definitions, without a server."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.logs.mllog import write_run_log
from finishline.rules.scoring.run import Evaluation, Ledger, Run

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SYSTEM = {"name": "laptop", "hardware_class": "cpu", "processor": "two cores"}
CLAIM = {"benchmark": "digits", "division": "closed", "model": "conv", "framework": "torch",
         "system": SYSTEM, "hyperparameters": {"batch_size": 64}}  # fmt: skip


def write_submission(
    folder: Path, *, finals: tuple[float, ...] = (98.0,) * 3, **claim: Any
) -> Path:
    """Runs of two evaluations, at 10 and at 20 seconds, the second of the given quality."""
    folder.mkdir(exist_ok=True)
    benchmark = load_benchmark(BENCHMARKS / "digits.toml")
    names = [f"run_{number}.log" for number in range(len(finals))]
    for seed, (name, final) in enumerate(zip(names, finals, strict=True)):
        run = Run(
            name=name,
            clock="mlperf",
            evaluations=(
                Evaluation(epoch=1.0, seconds=10.0, quality=50.0, ledger=Ledger(train=10.0)),
                Evaluation(epoch=2.0, seconds=20.0, quality=final, ledger=Ledger(train=20.0)),
            ),
            status="success" if final >= 97.5 else "aborted",
            stop_seconds=20.0,
            seed=seed,
            batch_size=64,
            benchmark="digits",
            division="closed",
            ledger=Ledger(train=20.0),
        )
        log = write_run_log(run, benchmark=benchmark, started_at_ms=1_700_000_000_000)
        (folder / name).write_text(log)
    (folder / "submission.json").write_text(json.dumps(CLAIM | {"runs": names} | claim))
    return folder


def test_a_good_submission_is_scored(finishline: "Finishline", tmp_path: Path) -> None:
    folder = write_submission(tmp_path / "sub")
    ran = finishline("check", str(folder))
    assert ran.code == 0
    assert ran.out.startswith("Accepted by the rules: digits closed, TTA 0:00:20 (20.000 s)")
    result = finishline("check", str(folder), "--json").json()["result"]
    assert (result["started"], result["reached"], result["tta_seconds"]) == (3, 3, 20.0)


def test_a_submission_that_missed_the_target_is_no_error(
    finishline: "Finishline", tmp_path: Path
) -> None:
    ran = finishline("check", str(write_submission(tmp_path / "s", finals=(60.0,) * 3)), "--json")
    assert ran.code == 0
    assert ran.json()["result"]["tta_seconds"] is None


def test_a_log_that_ends_without_run_stop_is_told_with_what_that_means(
    finishline: "Finishline", standin: "StandIn", tmp_path: Path
) -> None:
    folder = write_submission(tmp_path / "sub")
    for name, kept in (("run_1.log", "INTERVAL_START"), ("run_2.log", "eval_stop")):
        lines = (folder / name).read_text().splitlines(keepends=True)
        last = max(number for number, line in enumerate(lines) if kept in line)
        (folder / name).write_text("".join(lines[: last + 1]))

    ran = finishline("check", str(folder))

    assert (ran.code, ran.err) == (0, "")
    assert "2 of 3 runs reached the target" in ran.out
    warnings = [
        f"warning: {name}, field run_stop: the log ends without run_stop, so it was probably cut "
        f"off; {meaning}; expected a run_stop with its status at the end of a whole log"
        for name, meaning in (
            ("run_1.log", "its run counts as one that did not reach the target"),
            ("run_2.log", "its time is that of the evaluation that reached the target"),
        )
    ]
    assert ran.out.splitlines()[-2:] == warnings
    remarks = finishline("check", str(folder), "--json").json()["remarks"]
    assert [(remark["file"], remark["field"]) for remark in remarks] == [
        ("run_1.log", "run_stop"),
        ("run_2.log", "run_stop"),
    ]
    whole = write_submission(tmp_path / "whole", finals=(60.0,) * 3)
    assert finishline("check", str(whole), "--json").json()["remarks"] == []
    standin.answer("POST /api/v1/submissions", {"id": "s1", "result": {}}, status=201)
    assert finishline("submit", str(folder)).out.splitlines()[:2] == warnings
    assert finishline("submit", str(folder), "--json").json()["remarks"] == remarks
    assert "warning" not in finishline("submit", str(whole)).out


@pytest.mark.parametrize(
    ("claim", "field"),
    [
        ({"benchmark": "mnist"}, "benchmark"),
        ({"division": "ajar"}, "division"),
        ({"system": {"name": "x"}}, "system.hardware_class"),
        ({"hyperparameters": {"batch_size": 3}}, "hyperparameters.batch_size"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_broken_rule_is_exit_code_1_and_names_file_and_field(
    finishline: "Finishline", tmp_path: Path, claim: dict[str, Any], field: str
) -> None:
    ran = finishline("check", str(write_submission(tmp_path / "sub", **claim)), "--json")
    assert ran.code == 1
    assert ran.out == ""
    [problem] = ran.error()["problems"]
    assert (problem["file"], problem["field"]) == ("submission.json", field)


def test_a_log_by_itself_is_checked_with_the_submission_beside_it(
    finishline: "Finishline", tmp_path: Path
) -> None:
    folder = write_submission(tmp_path / "sub")
    ran = finishline("check", str(folder / "run_0.log"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(f"check the whole submission: finishline check {folder}\n")


def test_a_broken_log_line_is_named(finishline: "Finishline", tmp_path: Path) -> None:
    folder = write_submission(tmp_path / "sub")
    log = folder / "run_1.log"
    lines = log.read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "eval_accuracy" in line)
    lines[number - 1] = lines[number - 1].replace("50.0", '"fifty"')
    log.write_text("\n".join(lines) + "\n")
    ran = finishline("check", str(folder))
    assert ran.code == 1
    assert f"run_1.log line {number}" in ran.err
    assert "Traceback" not in ran.err


def test_a_dawnbench_entry_needs_its_benchmark_named(
    finishline: "Finishline", tmp_path: Path
) -> None:
    entry = {"version": "v1.0", "author": "A", "authorEmail": "a@example.org", "framework": "F",
             "model": "M", "hardware": "H", "timestamp": "2018-04-20"}  # fmt: skip
    (tmp_path / "entry.json").write_text(json.dumps(entry))
    rows = ["epoch\thours\ttop1Accuracy", "1\t0.05\t50.0", "2\t0.1\t94.0"]
    (tmp_path / "entry.tsv").write_text("\n".join(rows) + "\n")
    path = str(tmp_path / "entry.json")
    ran = finishline("check", path, "--benchmark", "cifar10", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json()["result"]["tta_seconds"] == pytest.approx(360.0)
    assert ran.json()["remarks"] == [], "a TSV has no run_stop"
    error = finishline("check", path, "--json").error()
    assert error["problems"][0]["field"] == "benchmark"
    assert error["message"].endswith("Name it with --benchmark, such as --benchmark cifar10.")


def test_benchmark_definitions_that_are_not_there_are_one_sentence(
    finishline: "Finishline", tmp_path: Path
) -> None:
    folder = write_submission(tmp_path / "sub")
    ran = finishline("check", str(folder), "--benchmarks-dir", str(tmp_path / "gone"))
    assert ran.code == 1
    assert "no benchmark definition" in ran.err
