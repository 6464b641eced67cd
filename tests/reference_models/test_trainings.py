"""What every reference promises of its trainings and of its settings."""

import math
from pathlib import Path

import pytest
import torch

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.run import Phase
from reference_models import (
    HyperparameterError,
    Measurement,
    TrainingDivergedError,
    digits,
    fashion,
    grammar,
    load_reference,
)
from tests.reference_models import small_squad
from tests.support.cifar_files import stripes, write_cifar10
from tests.support.curves import curve
from tests.support.fashion_files import bands, write_fashion

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# Settings of a short training, samples of its epoch, and the function that reads its data.
SHORT = {
    "cifar10": (
        {"batch_size": 128, "width": 8, "views": 2, "cutout_pixels": 8}, 256, "read_cifar10"
    ),
    "digits": ({"batch_size": 128}, 9 * 128, "read_data_set"),
    "fashion": ({"batch_size": 128}, 256, "read_images"),
    "grammar": ({"batch_size": 256}, 512, "read_corpus"),
    "squad": (small_squad.SMALL | {"batch_size": 100, "dropout": 0.2}, 200, "load"),
}  # fmt: skip


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a training of two epochs on small data."""
    monkeypatch.setattr("reference_models.cifar10.EVALUATION_BATCH", 100)
    train, test = stripes(300, seed=1), stripes(100, seed=2)
    write_cifar10(tmp_path, monkeypatch, train=[train], test=test)
    write_fashion(tmp_path, monkeypatch, train=bands(300, seed=1), test=bands(100, seed=2))
    train, test = (small_squad.questions_file(n, seed=n) for n in (256, 40))
    small_squad.publish(monkeypatch, tmp_path / "squad", train=train, test=test)

    def start(name, *, seed=0):
        module = load_reference(name)
        config = module.configure(SHORT[name][0] | {"epochs": 2})
        return module.train(config, seed=seed, device="cpu", data_dir=tmp_path)

    return start


@pytest.mark.parametrize("name", SHORT)
def test_a_seed_gives_its_curve_bit_for_bit(name, start, monkeypatch):
    """Neither the warm-up nor the moment when the data are read changes it."""
    _, samples, reader = SHORT[name]
    first = list(start(name, seed=7))
    kinds = ["measured" if isinstance(item, Measurement) else item.value for item in first]
    assert kinds == ["warmup", "data", *["train", "eval", "measured"] * 2]
    measured = [item for item in first if isinstance(item, Measurement)]
    assert [(item.epoch, item.samples) for item in measured] == [(1, samples), (2, 2 * samples)]

    module, reads = load_reference(name), []
    read = getattr(module, reader)
    monkeypatch.setattr(module, reader, lambda *given: reads.append(1) or read(*given))
    monkeypatch.setattr(module, "warm_up", lambda *_: None)
    training = start(name, seed=7)
    # What DATA does, it does when the next item is asked for.
    assert [next(training), next(training), reads] == [Phase.WARMUP, Phase.DATA, []]
    assert curve(training) == curve(first)
    assert reads == [1]
    assert curve(start(name, seed=8)) != curve(first)


@pytest.mark.parametrize("name", ["digits", "fashion", "grammar", "squad"])
def test_loss_that_is_no_number_ends_the_training(name, start, monkeypatch):
    monkeypatch.setattr(load_reference(name), "train_step", lambda *_, **__: torch.tensor(math.nan))
    with pytest.raises(TrainingDivergedError, match="epoch 1"):
        curve(start(name))


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("cifar10", "speed", 1),
        ("cifar10", "batch_size", 7),
        ("cifar10", "filter_learning_rate", math.nan),
        ("cifar10", "views", 3),
        ("cifar10", "compile", True),
        ("digits", "batch_size", 15),
        ("digits", "batch_size", 257),
        ("digits", "batch_size", 64.5),
        ("digits", "batch_size", "64"),
        ("digits", "epochs", 0),
        ("digits", "momentum", -0.1),
        ("digits", "base_learning_rate", math.inf),
        ("digits", "base_ema_decay", True),
        ("digits", "learning_rat", 0.1),
        ("fashion", "batch_size", 31),
        ("fashion", "compile", 0.5),
        ("fashion", "weight_decay", math.nan),
        ("grammar", "batch_size", 7),
        ("grammar", "batch_size", True),
        ("grammar", "epochs", math.nan),
        ("grammar", "base_learning_rate", "0.1"),
        ("grammar", "gradient_clip", 0),
        ("grammar", "learning_rate", 0.003),
        ("imagenet", "speed", 1),
        ("imagenet", "batch_size", 1),
        ("imagenet", "base_learning_rate", math.inf),
        ("imagenet", "smallest_pixels", 256),
        ("squad", "pretrained_vectors", 2),
        ("squad", "epochs", 1.5),
        ("squad", "dropout", math.nan),
        ("squad", "layers", 3),
    ],
)
def test_wrong_hyperparameter_is_refused_by_name(name, field, value):
    with pytest.raises(HyperparameterError) as refused:
        load_reference(name).configure({field: value})
    assert refused.value.field == f"hyperparameters.{field}"
    assert refused.value.expected


@pytest.mark.parametrize("name", [*SHORT, "imagenet"])
def test_benchmark_file_states_limits_defaults_and_data_of_the_reference(name):
    module, benchmark = load_reference(name), load_benchmark(BENCHMARKS / f"{name}.toml")
    stated = {
        field: (item.minimum, item.maximum, item.integer)
        for field, item in benchmark.hyperparameters.items()
    }
    limits = {
        field: (limit.minimum, limit.maximum, limit.whole)
        for field, limit in module.configure({}).limits().items()
    }
    assert stated == limits
    assert module.configure(benchmark.defaults()) == module.configure({})
    assert benchmark.data_set.sha256 == module.DATA_SET_SHA256


def test_benchmark_files_count_the_test_items_of_the_references():
    counted = {
        "digits": digits.TEST_ITEMS,
        "fashion": fashion.TEST_ITEMS,
        "grammar": grammar.TEST_WINDOWS * grammar.CONTEXT_BYTES,
    }
    for name, items in counted.items():
        assert load_benchmark(BENCHMARKS / f"{name}.toml").data_set.test_items == items
