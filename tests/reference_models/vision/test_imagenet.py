"""Properties of the ImageNet reference: short trainings on made-up pictures of three classes."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.models import resnet50

from finishline.rules.run import Phase
from reference_models import (
    DataSetError,
    HyperparameterError,
    Measurement,
    TrainingDivergedError,
    imagenet,
    imagenet_files,
)
from reference_models.distributed import World
from reference_models.memory import TrainingMemoryError

ALONE = World(rank=0, size=1, device="cpu")
CLASSES = 6  # one more than the five guesses
SMALL = {
    "batch_size": 12,
    "smallest_pixels": 32,
    "largest_pixels": 32,
    "evaluation_pixels": 32,
    "loader_processes": 0,
}


def small_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES),
    )  # fmt: skip


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """48 training and 24 validation pictures of six colours, and a reader that expects them."""
    draws = np.random.default_rng(0)
    for part, each in (("train", 8), ("val", 4)):
        for label in range(CLASSES):
            folder = tmp_path / "imagenet" / part / f"n{label}"
            folder.mkdir(parents=True)
            colour = 40 + 180 * np.array([label & 1, label >> 1 & 1, label >> 2 & 1])
            for index in range(each):
                pixels = colour + draws.integers(-30, 30, (40, 48, 3))
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{index}.JPEG")
    monkeypatch.setattr(imagenet_files, "TRAINING_PICTURES", 48)
    monkeypatch.setattr(imagenet_files, "VALIDATION_PICTURES", 24)
    monkeypatch.setattr(imagenet_files, "CLASSES", CLASSES)
    monkeypatch.setattr(imagenet, "CLASSES", CLASSES)
    return tmp_path


@pytest.fixture
def start(data_dir, monkeypatch):
    monkeypatch.setattr(imagenet, "build_model", small_model)

    def start(*, seed=0, **chosen):
        config = imagenet.configure(SMALL | chosen)
        return imagenet.train(config, seed=seed, device="cpu", data_dir=data_dir)

    return start


def losses(monkeypatch, training):
    """The mean loss of each epoch's last step, by way of the check for its being a number."""
    seen = []
    monkeypatch.setattr(imagenet, "check_loss", lambda loss, epoch: seen.append(loss))
    list(training)
    return seen


def test_resnet50_runs_from_warm_up_to_a_measurement(data_dir):
    config = imagenet.configure(SMALL | {"epochs": 1})
    items = list(imagenet.train(config, seed=0, device="cpu", data_dir=data_dir))
    assert items[:4] == [Phase.WARMUP, Phase.DATA, Phase.TRAIN, Phase.EVAL]
    assert (items[4].epoch, items[4].samples) == (1, 48)
    assert 0 <= items[4].quality <= 100


def test_model_is_torchvisions_resnet50_of_a_thousand_classes():
    ours = imagenet.build_model().state_dict()
    theirs = resnet50().state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}
    assert float(ours["layer1.0.bn3.weight"].abs().max()) == 0.0


def test_same_seed_gives_the_same_losses_bit_for_bit_and_another_seed_others(start, monkeypatch):
    first = losses(monkeypatch, start(seed=3, epochs=2))
    assert first == losses(monkeypatch, start(seed=3, epochs=2))
    assert first != losses(monkeypatch, start(seed=4, epochs=2))


def test_processes_that_load_pictures_change_no_count_of_samples(start):
    items = [i for i in start(epochs=1, loader_processes=2) if isinstance(i, Measurement)]
    assert [(item.epoch, item.samples) for item in items] == [(1, 48)]


def test_loss_falls_on_colours(start, monkeypatch):
    falling = losses(monkeypatch, start(epochs=8, label_smoothing=0))
    assert falling[0] > 1.0
    assert falling[-1] < 0.6 * falling[0]


def test_shuffled_labels_are_not_learned(start, monkeypatch):
    real = imagenet.open_pictures

    def shuffled(data_dir):
        training, validation = real(data_dir)
        labels = np.random.default_rng(1).permutation([label for _, label in training.files])
        files = [(path, int(label)) for (path, _), label in zip(training.files, labels)]  # noqa: B905
        return imagenet_files.Pictures(tuple(files)), validation

    monkeypatch.setattr(imagenet, "open_pictures", shuffled)
    assert losses(monkeypatch, start(epochs=8, label_smoothing=0))[-1] > 1.0


def test_evaluation_counts_every_picture_once(data_dir):
    class Constant(nn.Module):
        """Always finds the sixth class the least likely."""

        def forward(self, x):
            return torch.tensor([[5.0, 4, 3, 2, 1, 0]]).expand(len(x), -1)

    _, validation = imagenet_files.open_pictures(data_dir)
    config = imagenet.configure(SMALL | {"batch_size": 7})
    quality = imagenet.top5_percent(Constant(), validation, config, ALONE)
    assert quality == pytest.approx(100 * 20 / 24)  # four of the 24 are of the sixth class


# What goes wrong


def test_missing_pictures_are_said_with_where_they_belong(tmp_path):
    with pytest.raises(DataSetError, match=r"imagenet/train/CLASS/\*\.JPEG") as caught:
        imagenet_files.open_pictures(tmp_path)
    assert str(tmp_path / "imagenet" / "train") in str(caught.value)


def test_half_unpacked_pictures_are_counted(data_dir):
    (data_dir / "imagenet" / "train" / "n2" / "3.JPEG").unlink()
    with pytest.raises(DataSetError, match=r"there are 47 pictures of 6 classes.*expected 48"):
        imagenet_files.open_pictures(data_dir)


def test_classes_of_training_and_validation_must_agree(data_dir):
    folder = data_dir / "imagenet" / "val"
    (folder / "n5").rename(folder / "n9")
    with pytest.raises(DataSetError, match="the class n5 is in one of train and val only"):
        imagenet_files.open_pictures(data_dir)


@pytest.mark.parametrize("loader_processes", [0, 1])
def test_file_that_is_no_picture_is_named(start, data_dir, loader_processes):
    path = data_dir / "imagenet" / "train" / "n1" / "0.JPEG"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataSetError, match=f"{path} cannot be read as a picture"):
        list(start(epochs=1, loader_processes=loader_processes))


def test_loss_that_is_no_number_ends_the_run(start, monkeypatch):
    monkeypatch.setattr(imagenet, "scaled", lambda x: x.float() * math.inf)
    with pytest.raises(TrainingDivergedError, match="the loss is nan at the end of epoch 1"):
        list(start(epochs=2))


def test_memory_that_runs_out_is_said_with_the_batch_size(start, monkeypatch):
    def step(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(imagenet, "warm_up", step)
    with pytest.raises(TrainingMemoryError, match="at a batch size of 12"):
        list(start())


def test_batch_larger_than_the_data_set_is_refused(start):
    with pytest.raises(HyperparameterError, match="at most the 48 training pictures"):
        list(start(batch_size=49))
