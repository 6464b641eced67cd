"""`python -m worker.local`: the files a submitter sends, from a real short training."""

import json
from pathlib import Path

import pytest

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.logs import parse_run_log
from worker.local import local_job, main, read_arguments, submission
from worker.probe import probe

DIGITS = Path(__file__).parents[2] / "benchmarks" / "digits.toml"


def test_local_training_writes_a_submission_and_logs_that_read_back(tmp_path, capfd):
    out = tmp_path / "out"
    assert (
        main([str(DIGITS), "--runs", "2", "--out", str(out), "--seed", "40", "--device", "cpu"])
        == 0
    )
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["sequence"] for event in events] == list(range(len(events)))
    assert [event["status"] for event in events if event["kind"] == "run_finished"] == (
        ["reached", "reached"]
    )
    submission = json.loads((out / "submission.json").read_text())
    assert submission["benchmark"] == "digits"
    assert submission["division"] == "closed"
    assert submission["trained_with"] == "reference"
    assert submission["system"]["accelerator_count"] == 0
    assert submission["runs"] == ["run_0.log", "run_1.log"]
    benchmark = load_benchmark(DIGITS)
    for index, name in enumerate(submission["runs"]):
        run = parse_run_log((out / name).read_bytes(), name=name, benchmark=benchmark)
        trained = [e for e in events if e["run"] == index and e["kind"] == "evaluation"]
        assert run.seed == 40 + index
        assert 0.0 < run.processor_share <= 1.0
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


TICKET = {
    "id": "abc",
    "benchmark": "digits",
    "division": "closed",
    "settings": {"batch_size": 32.0},
    "hardware_class": "lab",
    "seeds": [11, 12, 13],
    "created_at": "2026-11-23T12:00:00Z",
}


def test_a_ticket_says_seeds_settings_and_class(tmp_path):
    file = tmp_path / "ticket.json"
    file.write_text(json.dumps(TICKET))

    chosen = read_arguments([str(DIGITS), "--ticket", str(file), "--out", str(tmp_path / "out")])

    assert chosen.seeds == (11, 12, 13)
    assert chosen.settings == {"batch_size": 32.0}
    assert (chosen.runs, chosen.division, chosen.hardware_class) == (3, "closed", "lab")
    made = submission(chosen, describe_system(), local_job(chosen))
    assert (made["ticket"], made["unfinished"]) == ("abc", [])


def describe_system():
    return probe(worker="grace", hardware_class="lab", threads=1, device="cpu")


def test_a_ticket_for_another_benchmark_is_refused(tmp_path, capsys):
    file = tmp_path / "ticket.json"
    file.write_text(json.dumps(TICKET | {"benchmark": "cifar10"}))

    assert main([str(DIGITS), "--ticket", str(file), "--out", str(tmp_path / "out")]) == 2
    assert "a ticket for 'cifar10'" in capsys.readouterr().err
