"""`python -m worker.local`: the files a submitter sends, from a real short training."""

import json
from pathlib import Path

import pytest

from rules.benchmark import load_benchmark
from rules.logs import parse_run_log
from worker.local import main

DIGITS = Path(__file__).parents[2] / "benchmarks" / "digits.toml"


def test_local_training_writes_a_submission_and_logs_that_read_back(tmp_path, capfd):
    out = tmp_path / "out"
    assert main([str(DIGITS), "--runs", "2", "--out", str(out), "--seed", "40"]) == 0
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["sequence"] for event in events] == list(range(len(events)))
    assert [event["status"] for event in events if event["kind"] == "run_finished"] == (
        ["reached", "reached"]
    )
    submission = json.loads((out / "submission.json").read_text())
    assert submission["benchmark"] == "digits"
    assert submission["division"] == "closed"
    assert submission["runs"] == ["run_0.log", "run_1.log"]
    benchmark = load_benchmark(DIGITS)
    for index, name in enumerate(submission["runs"]):
        run = parse_run_log((out / name).read_bytes(), name=name, benchmark=benchmark)
        trained = [e for e in events if e["run"] == index and e["kind"] == "evaluation"]
        assert run.seed == 40 + index
        assert run.batch_size == 64
        assert run.status == "success"
        assert [e.quality for e in run.evaluations] == pytest.approx(
            [e["quality"] for e in trained]
        )
        assert run.evaluations[-1].seconds == pytest.approx(trained[-1]["seconds"], abs=0.002)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "batch_size=8"], "hyperparameters.batch_size"),
        (["--set", "batch_size=64.5"], "whole number"),
        (["--set", "momentum=0.8"], "closed division"),
        (["--set", "speed=2"], "unknown hyperparameter"),
        (["--set", "batchsize=32"], "unknown hyperparameter (did you mean 'batch_size'?)"),
        (["--division", "mixed"], "closed or open"),
    ],
)
def test_setting_that_is_not_allowed_is_refused_before_training(tmp_path, capsys, arguments, said):
    assert main([str(DIGITS), "--out", str(tmp_path / "out"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_missing_benchmark_file_is_named(tmp_path, capsys):
    assert main([str(tmp_path / "absent.toml"), "--out", str(tmp_path)]) == 2
    assert "absent.toml" in capsys.readouterr().err
