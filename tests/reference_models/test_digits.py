"""Properties of the digits reference: short trainings on one thread."""

import itertools
import statistics
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from finishline.rules.benchmarks.benchmark import load_benchmark
from reference_models import (
    DataSetError,
    digits,
    synthetic_of,
)
from reference_models.arithmetic import Arithmetic
from reference_models.precision import configured
from tests.support.curves import curve

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "digits.toml")


def start(*, seed=0, **hyperparameters):
    config = digits.configure(hyperparameters)
    return digits.train(config, seed=seed, device="cpu", data_dir=Path("unused"))


def test_training_on_shuffled_labels_does_not_reach_the_target(monkeypatch):
    images, labels = digits.read_data_set()
    is_test = np.arange(len(labels)) % 3 == 0
    shuffled = labels.copy()
    shuffled[~is_test] = np.random.default_rng(0).permutation(labels[~is_test])
    monkeypatch.setattr(digits, "read_data_set", lambda: (images, shuffled))
    assert max(curve(start(seed=3, epochs=10))) < 50  # An honest one is there by then.


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(DataSetError, match="pip install scikit-learn"):
        digits.read_data_set()


def test_other_images_are_refused_by_their_hash(monkeypatch, tmp_path):
    table = np.loadtxt(digits.data_set_file(), delimiter=",")
    table[0, 0] = 16 - table[0, 0]
    np.savetxt(tmp_path / "digits.csv", table, fmt="%d", delimiter=",")
    monkeypatch.setattr(digits, "data_set_file", lambda: tmp_path / "digits.csv")
    with pytest.raises(DataSetError, match=r"SHA-256.*87ff0c9e40dc"):
        digits.read_data_set()


def test_whole_numbers_may_come_as_floats():
    assert digits.configure({"batch_size": 64.0, "epochs": 2.0}) == digits.DigitsConfig(epochs=2)


def test_mixed_precision_learns_much_as_single_precision_does():
    assert BENCHMARK.replay.precisions == digits.PRECISIONS
    config = configured(digits, {"epochs": 3}, "bf16")
    mixed = curve(digits.train(config, seed=3, device="cpu", data_dir=Path("unused")))
    assert mixed == pytest.approx(curve(start(seed=3, epochs=3)), abs=2.0)


def test_a_loss_in_fp16_is_scaled_and_a_step_beyond_its_range_left_out():
    model = torch.nn.Linear(1, 1, bias=False)
    before = model.weight.detach().clone()
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    arithmetic = Arithmetic("fp16", "cpu")
    with arithmetic.forward():
        loss = model(torch.full((64, 1), 2.0**-20)).float().mean()  # fp16 has no such gradients.
    arithmetic.backward(loss)
    arithmetic.unscale(optimiser)
    assert model.weight.grad.item() == 2.0**-20
    arithmetic.step(optimiser)
    assert model.weight.item() == pytest.approx(before.item() - 2.0**-20)
    optimiser.zero_grad()
    stepped = model.weight.detach().clone()
    arithmetic.backward(model(torch.full((1, 1), torch.inf)).sum())
    arithmetic.step(optimiser)
    assert torch.equal(model.weight, stepped)


def test_calibrated_runs_need_more_epochs_at_larger_batches():
    epochs = {}
    for batch_size in (32, 64, 128):
        runs = BENCHMARK.reference_runs_at(batch_size)
        assert len({run.seed for run in runs}) == 40
        reached = [
            next(n for n, q in enumerate(run.quality, 1) if BENCHMARK.target.is_reached(q))
            for run in runs
        ]
        epochs[batch_size] = statistics.mean(reached)
    assert all(a < b for a, b in itertools.pairwise(epochs.values()))


def test_reference_trains_as_it_was_calibrated():
    """Images, split, network, rates and averages are those of the runs in the file."""
    calibrated = BENCHMARK.reference_runs_at(64)[0]
    assert curve(start(seed=calibrated.seed)) == pytest.approx(calibrated.quality, abs=2.0)


def test_the_synthetic_step_trains_on_noise_of_the_data_sets_shape():
    synthetic = synthetic_of(digits, digits.configure({"batch_size": 32}), "cpu")
    train_x, _, test_x, _ = digits.load_split()
    assert synthetic.batch_size == 32
    assert synthetic.steps_per_epoch == len(train_x) // 32
    assert synthetic.inference_items == len(test_x)
    synthetic.train_step()
    assert synthetic.infer().shape == (len(test_x),)
    assert synthetic_of(SimpleNamespace(), digits.configure({}), "cpu") is None
