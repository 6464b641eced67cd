"""What the ImageNet reference refuses before it needs torchvision."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from finishline.rules.benchmarks.benchmark import load_benchmark
from reference_models import DataSetError, HyperparameterError, imagenet, imagenet_files

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "imagenet.toml")


def test_benchmark_file_and_code_state_the_same_limits():
    stated = BENCHMARK.hyperparameters
    assert set(stated) == set(imagenet.LIMITS)
    assert BENCHMARK.data_set.sha256 == imagenet.DATA_SET_SHA256
    assert BENCHMARK.data_set.train_items == imagenet_files.TRAINING_PICTURES
    assert BENCHMARK.data_set.test_items == imagenet_files.VALIDATION_PICTURES
    defaults = imagenet.configure({})
    for name, limit in imagenet.LIMITS.items():
        item = stated[name]
        stated_limit = (item.minimum, item.maximum, item.integer)
        assert stated_limit == (limit.minimum, limit.maximum, limit.whole)
        assert item.default == getattr(defaults, name)


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        ({"speed": 1}, "hyperparameters.speed"),
        ({"batch_size": 1}, "hyperparameters.batch_size"),
        ({"base_learning_rate": float("inf")}, "hyperparameters.base_learning_rate"),
        ({"smallest_pixels": 256}, "hyperparameters.smallest_pixels"),
    ],
)
def test_refused_hyperparameter_is_named(chosen, field):
    with pytest.raises(HyperparameterError, match=field):
        imagenet.configure(chosen)


def test_torchvision_that_is_absent_is_said_with_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(DataSetError, match=r"pip install 'finishline-server\[vision\]'"):
        imagenet_files.open_pictures(tmp_path)


def test_learning_rate_follows_the_batch_size_and_the_triangle():
    config = imagenet.configure({"batch_size": 512, "peak_share": 0.25})
    assert config.learning_rate == pytest.approx(2 * 0.5)
    rates = [imagenet.learning_rate_at(step, 8, config) for step in range(8)]
    assert rates == pytest.approx([1 / 3, 2 / 3, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])


def test_torchvision_that_is_absent_ends_a_training_and_a_bench_with_the_same_sentence(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    config = imagenet.configure({"batch_size": 2})
    with pytest.raises(DataSetError, match=r"pip install 'finishline-server\[vision\]'"):
        next(imagenet.train(config, seed=0, device="cpu", data_dir=tmp_path))
    with pytest.raises(DataSetError, match=r"pip install 'finishline-server\[vision\]'"):
        imagenet.synthetic(config, "cpu")


def test_synthetic_step_trains_a_model_on_made_up_pictures(monkeypatch):
    def small_model():
        return nn.Sequential(
            nn.Conv2d(3, 8, 8, stride=8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, imagenet.CLASSES),
        )

    monkeypatch.setattr(imagenet, "build_model", small_model)
    config = imagenet.configure(
        {"batch_size": 4, "smallest_pixels": 32, "largest_pixels": 64, "evaluation_pixels": 96}
    )
    torch.manual_seed(0)
    made = imagenet.synthetic(config, "cpu")
    losses = [float(made.train_step()) for _ in range(2)]
    assert losses[0] > losses[1] > 0
    assert (made.batch_size, made.steps_per_epoch) == (4, 1_281_167 // 4)
    assert made.infer().shape == (4, imagenet.CLASSES)
