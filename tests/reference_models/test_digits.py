"""Properties of the digits reference: short trainings on one thread."""

import itertools
import math
import statistics
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.scoring.run import Phase
from reference_models import (
    DataSetError,
    HyperparameterError,
    Measurement,
    TrainingDivergedError,
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


@cache
def full_curve():
    """The qualities of a training as the benchmark file sets it: several tests look at the one."""
    return curve(start(seed=123))


def test_same_seed_gives_the_same_curve_bit_for_bit_and_another_seed_another():
    first = curve(start(seed=7, epochs=3))
    assert first == curve(start(seed=7, epochs=3))
    assert first != curve(start(seed=8, epochs=3))


def test_reference_reaches_the_target_within_its_epochs():
    qualities = full_curve()
    assert len(qualities) == 20
    assert any(BENCHMARK.target.is_reached(quality) for quality in qualities)
    assert qualities[0] < 60 < qualities[4] < max(qualities)


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


def test_data_set_is_first_read_after_the_clock_started(monkeypatch):
    reads = []
    real = digits.read_data_set
    monkeypatch.setattr(digits, "read_data_set", lambda: reads.append(1) or real())
    training = start(epochs=1)
    phases = []
    for item in training:
        if isinstance(item, Phase):
            phases.append(item)
        if not phases or phases[-1] in (Phase.INIT, Phase.WARMUP, Phase.DATA):
            assert reads == []  # What DATA does, it does when the next item is asked for.
        else:
            assert reads == [1]
    assert phases == [Phase.WARMUP, Phase.DATA, Phase.TRAIN, Phase.EVAL]


def test_warm_up_leaves_model_and_random_numbers_as_they_were(monkeypatch):
    with_warm_up = curve(start(seed=5, epochs=2))
    monkeypatch.setattr(digits, "warm_up", lambda *arguments: None)
    assert curve(start(seed=5, epochs=2)) == with_warm_up


def test_measurements_count_epochs_and_samples():
    items = [item for item in start(epochs=2, batch_size=128) if isinstance(item, Measurement)]
    assert [item.epoch for item in items] == [1, 2]
    assert [item.samples for item in items] == [9 * 128, 2 * 9 * 128]  # 1,198 // 128 = 9


def test_evaluation_time_lies_between_two_edges():
    kinds = ["measured" if isinstance(i, Measurement) else i.value for i in start(epochs=2)]
    assert kinds == ["warmup", "data", "train", "eval", "measured", "train", "eval", "measured"]


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


def test_loss_that_is_no_number_ends_the_training(monkeypatch):
    monkeypatch.setattr(digits, "train_step", lambda *a, **k: torch.tensor(math.nan))
    with pytest.raises(TrainingDivergedError, match="epoch 1"):
        curve(start())


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 15),
        ("batch_size", 257),
        ("batch_size", 64.5),
        ("batch_size", math.nan),
        ("batch_size", "64"),
        ("epochs", 0),
        ("momentum", -0.1),
        ("base_learning_rate", math.inf),
        ("base_ema_decay", True),
        ("learning_rat", 0.1),
    ],
)
def test_wrong_hyperparameter_is_refused_by_name(name, value):
    with pytest.raises(HyperparameterError) as refused:
        digits.configure({name: value})
    assert refused.value.field == f"hyperparameters.{name}"
    assert refused.value.expected


def test_whole_numbers_may_come_as_floats():
    assert digits.configure({"batch_size": 64.0, "epochs": 2.0}) == digits.DigitsConfig(epochs=2)


def test_benchmark_file_states_the_limits_and_defaults_of_the_reference():
    stated = {
        name: (item.minimum, item.maximum, item.integer)
        for name, item in BENCHMARK.hyperparameters.items()
    }
    assert stated == digits.LIMITS
    assert digits.configure(BENCHMARK.defaults()) == digits.DigitsConfig()


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


def test_benchmark_file_names_the_data_set_of_the_reference():
    assert BENCHMARK.data_set.sha256 == digits.DATA_SET_SHA256
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
    fresh = full_curve()
    for epoch in range(5, 20):
        column = [run.quality[epoch] for run in calibrated]
        assert min(column) - 1.5 <= fresh[epoch] <= max(column) + 1.5


def test_the_synthetic_step_trains_on_noise_of_the_data_sets_shape():
    config = digits.configure({"batch_size": 32})
    synthetic = digits.synthetic(config, "cpu")
    train_x, _, test_x, _ = digits.load_split()
    assert synthetic.steps_per_epoch == len(train_x) // 32
    assert synthetic.inference_items == len(test_x)
    synthetic.train_step()
    assert synthetic.infer().shape == (len(test_x),)


def test_a_reference_without_a_synthetic_step_is_told_apart():
    config = digits.configure({})
    assert synthetic_of(digits, config, "cpu").batch_size == 64
    assert synthetic_of(SimpleNamespace(), config, "cpu") is None
