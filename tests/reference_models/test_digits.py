"""Properties of the digits reference: short trainings on one thread."""

import itertools
import math
import statistics
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from finishline.rules.benchmarks.benchmark import load_benchmark
from reference_models import (
    DataSetError,
    Measurement,
    digits,
    synthetic_of,
)
from reference_models.arithmetic import Arithmetic
from reference_models.precision import configured

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "digits.toml")


def start(*, seed=0, **hyperparameters):
    config = digits.configure(hyperparameters)
    return digits.train(config, seed=seed, device="cpu", data_dir=Path("unused"))


def curve(training):
    return [item.quality for item in training if isinstance(item, Measurement)]


def test_training_on_shuffled_labels_does_not_reach_the_target(monkeypatch):
    images, labels = digits.read_data_set()
    is_test = np.arange(len(labels)) % 3 == 0
    shuffled = labels.copy()
    shuffled[~is_test] = np.random.default_rng(0).permutation(labels[~is_test])
    monkeypatch.setattr(digits, "read_data_set", lambda: (images, shuffled))
    assert max(curve(start(seed=3, epochs=10))) < 50  # An honest one is there by then.


def test_loss_falls_on_one_batch():
    torch.manual_seed(0)
    config = digits.configure({})
    model = digits.build_model()
    optimiser = digits.make_optimiser(model, config)
    x, y, _, _ = digits.load_split()
    plain = Arithmetic("fp32", "cpu")
    losses = [
        digits.train_step(model, optimiser, x[:64], y[:64], plain, rate=0.02).item()
        for _ in range(30)
    ]
    assert losses[0] == pytest.approx(math.log(10), abs=0.2)  # ten classes, nothing learned
    assert losses[-1] < losses[0] / 2


def test_the_images_are_those_that_scikit_learn_loads():
    images, labels = digits.read_data_set()
    bunch = load_digits()
    assert np.array_equal(images, bunch.images)
    assert np.array_equal(labels, bunch.target)


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


def test_split_is_every_third_image_and_standardised_by_the_training_images():
    train_x, train_y, test_x, test_y = digits.load_split()
    assert train_x.shape == (1198, 1, 8, 8)
    assert test_x.shape == (599, 1, 8, 8)
    assert train_x.mean().item() == pytest.approx(0, abs=1e-5)
    assert train_x.std().item() == pytest.approx(1, abs=1e-5)
    labels = load_digits().target
    assert test_y.tolist() == labels[::3].tolist()
    assert train_y[:4].tolist() == labels[[1, 2, 4, 5]].tolist()


def test_model_has_the_stated_number_of_parameters():
    assert sum(parameter.numel() for parameter in digits.build_model().parameters()) == 97_802


def test_learning_rate_rises_over_the_warm_up_share_and_falls_to_zero():
    config = digits.configure({"batch_size": 128})
    rates = [digits.learning_rate_at(step, 100, config) for step in range(100)]
    assert max(rates) == pytest.approx(0.04)  # 0.02 at batch size 64
    assert rates.index(max(rates)) == 30
    assert rates[:31] == sorted(rates[:31])
    assert rates[30:] == sorted(rates[30:], reverse=True)
    assert 0 < rates[0] < 0.002
    assert 0 < rates[-1] < 0.001


def test_averaged_weights_follow_the_textbook_formula():
    model, averaged = digits.build_model(), digits.build_model()
    expected = [
        0.9 * mean + 0.1 * weight
        for mean, weight in zip(averaged.parameters(), model.parameters(), strict=True)
    ]
    digits.average(averaged, model, decay=0.9)
    for mean, wanted in zip(averaged.parameters(), expected, strict=True):
        torch.testing.assert_close(mean, wanted)


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


def test_benchmark_file_counts_the_test_items_of_the_reference():
    assert BENCHMARK.data_set.test_items == digits.TEST_ITEMS


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
    calibrated = BENCHMARK.reference_runs_at(64)
    fresh = curve(start(seed=123))
    assert len(fresh) == 20
    assert any(BENCHMARK.target.is_reached(quality) for quality in fresh)
    assert fresh[0] < 60 < fresh[4] < max(fresh)
    for epoch in range(5, 20):
        column = [run.quality[epoch] for run in calibrated]
        assert min(column) - 1.5 <= fresh[epoch] <= max(column) + 1.5


def test_the_synthetic_step_trains_on_noise_of_the_data_sets_shape():
    synthetic = synthetic_of(digits, digits.configure({"batch_size": 32}), "cpu")
    train_x, _, test_x, _ = digits.load_split()
    assert synthetic.batch_size == 32
    assert synthetic.steps_per_epoch == len(train_x) // 32
    assert synthetic.inference_items == len(test_x)
    synthetic.train_step()
    assert synthetic.infer().shape == (len(test_x),)
    assert synthetic_of(SimpleNamespace(), digits.configure({}), "cpu") is None
