import subprocess
import sys

import pytest
import torch

from finishline.rules.benchmarks.benchmark import ReferenceRun, parse_benchmark
from finishline.rules.benchmarks.calibration import reference_run_toml
from reference_models import (
    REFERENCES,
    UnknownReferenceError,
    cifar10,
    load_reference,
    squad,
    synthetic_of,
)
from reference_models.calibrate import epochs_to, summary


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_every_reference_has_what_a_worker_asks_for(name):
    module = load_reference(name)
    assert callable(module.configure)
    assert callable(module.train)
    assert module.DATA_SET_SHA256 is None or len(module.DATA_SET_SHA256) == 64


@pytest.mark.parametrize("name", ["mnist", "os", "reference_models.digits", ""])
def test_only_references_of_the_table_are_loaded(name):
    with pytest.raises(UnknownReferenceError, match="digits"):
        load_reference(name)


def test_the_table_of_references_loads_no_torch():
    code = "import sys, reference_models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_epochs_to_target_is_the_first_evaluation_at_it():
    assert epochs_to([90.0, 97.5, 97.0], target=97.5) == 2
    assert epochs_to([90.0, 97.4], target=97.5) is None
    assert epochs_to([0.9, 0.8, 0.7], target=0.8, direction="lower") == 2


def test_summary_counts_the_seeds_that_reached():
    curves = [[90.0, 98.0], [98.0, 98.0], [90.0, 91.0]]
    assert summary(curves, target=97.5) == (
        "2 of 3 seeds reached 97.5 after 1.50 +- 0.71 evaluations"
    )


def test_calibrated_run_reads_back_from_a_benchmark_file():
    text = reference_run_toml(ReferenceRun(batch_size=32, seed=7, quality=(12.345678, 97.5)))
    benchmark = parse_benchmark((HEAD + text).encode(), file="small.toml")
    [run] = benchmark.reference_runs
    assert (run.batch_size, run.seed, run.quality) == (32, 7, (12.3457, 97.5))


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("name", "chosen", "items"),
    [
        ("cifar10", {"batch_size": 8, "width": 4, "views": 1, "epochs": 1}, 6),
        ("grammar", {"batch_size": 8}, 256),
        ("squad", {"batch_size": 2, "width": 8, "dropout": 0.0}, 6),
        ("text", {"batch_size": 8}, 256),
    ],
)
def test_synthetic_step_trains_on_made_up_data_as_often_as_asked(name, chosen, items, monkeypatch):
    monkeypatch.setattr(cifar10, "TRAIN_IMAGES", 16)  # Two steps are then a whole run.
    monkeypatch.setattr(squad, "MADE_UP_WORDS", 100)
    for module in (cifar10, squad):
        monkeypatch.setattr(module, "EVALUATION_BATCH", 6)
    torch.manual_seed(0)
    reference = load_reference(name)
    made = synthetic_of(reference, reference.configure(chosen), "cpu")
    losses = [float(made.train_step()) for _ in range(3)]
    assert losses[0] > losses[1] > losses[2] > 0
    assert made.batch_size == chosen["batch_size"]
    assert made.steps_per_epoch >= 1
    assert made.inference_items == len(made.infer()) == items


HEAD = """
id = "small"
title = "Small"
version = "1"
task = "a task"
about = "about it"
divisions = ["open"]
clock = "mlperf"
[data_set]
name = "a set"
source = "somewhere"
train_items = 2
test_items = 1
[target]
metric = "top1Accuracy"
value = 97.5
unit = "percent"
direction = "higher"
reach = "first_crossing"
[runs]
count = 3
dropped = 1
"""
