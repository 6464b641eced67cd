"""What a bench makes of its measurements, and what it says when one is missing."""

import json
from pathlib import Path

import pytest

from finishline.rules.archive.definitions import shipped_file
from worker.bench import BenchError, main, read_arguments, run_bench

DIGITS = str(Path(__file__).parents[2] / "benchmarks" / "digits.toml")
THROUGHPUT = {
    "items_per_second": 6400.0,
    "slowest": 6000.0,
    "fastest": 6500.0,
    "seconds_per_call": 0.01,
    "items_per_call": 64,
    "calls": 70,
}
ANSWERS = {
    "worker.throughput": {
        "training": THROUGHPUT,
        "inference": THROUGHPUT,
        "telemetry": {"readings": 0},
        "steps_per_epoch": 18,
    },
    "worker.precision_probe": {
        "precision": {"lowest": "fp32"},
        "work": {"batch_size": 64, "step_flops": 1e9, "step_bytes": 1e7},
    },
    "worker.roofs": {
        "figures": {
            "gemm_fp32": {"value": 0.2, "unit": "TFLOP/s", "how": "matmul"},
            "convolution_fp32": {"value": 0.4, "unit": "TFLOP/s", "how": "convolution"},
            "copy": {"value": 100.0, "unit": "GB/s", "how": "copy"},
        }
    },
}


def result(answers, *arguments):
    return run_bench(read_arguments([DIGITS, *arguments]), lambda module, *_: answers[module])


def test_utilisation_is_held_against_the_best_roof_of_the_same_type():
    found = result(ANSWERS)
    # 1 GFLOP in 10 ms are 0.1 TFLOP/s, of the 0.4 that a convolution reaches here.
    assert found["roofline"]["utilisation"] == pytest.approx(0.25)
    assert found["roofline"]["intensity"] == pytest.approx(100.0)
    assert found["roofline"]["bound"] == "compute"


def test_time_to_the_target_is_epochs_of_the_reference_by_steps_here():
    found = result(ANSWERS)["to_target"]
    # The docstring of the reference: 7.67 epochs at 64, mean over 40 seeds.
    assert found["epochs"] == pytest.approx(7.67, abs=0.01)
    assert found["epoch_seconds"] == pytest.approx(0.18)
    assert found["training_seconds"] == pytest.approx(0.18 * found["epochs"])


def test_a_batch_size_without_reference_runs_has_no_time_to_the_target():
    assert result(ANSWERS, "--set", "batch_size=48")["to_target"] is None


def test_without_audit_or_roofs_the_throughput_stands_alone():
    found = result(ANSWERS | {"worker.precision_probe": None, "worker.roofs": None})
    assert found["training"]["items_per_second"] == 6400.0
    assert (found["precision"], found["work"], found["roofline"]) == (None, None, None)
    assert found["roofs"] == {}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "failed or took too long"),
        ({"missing": "the reference digits offers no synthetic step"}, "no synthetic step"),
    ],
)
def test_without_a_throughput_there_is_no_result(answer, said):
    with pytest.raises(BenchError, match=said):
        result(ANSWERS | {"worker.throughput": answer})


def test_what_is_measured_next_is_told_and_then_the_result(capsys, monkeypatch):
    monkeypatch.setattr("worker.bench.measure_apart", lambda module, *_: ANSWERS[module])
    assert main([DIGITS]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event.get("doing") for event in events] == ["throughput", "audit", "roofs", None]
    assert events[-1]["result"]["benchmark"] == "digits"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "momentun=1"], "hyperparameters.momentun"),
        (["--set", "batch_size=7"], "a whole number from 16 to 256"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(arguments, said, capsys):
    assert main([DIGITS, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_benchmark_without_a_reference_is_refused(capsys):
    assert main([str(shipped_file("mlperf-v0.5-gnmt"))]) == 2
    assert "has no reference training" in capsys.readouterr().err
