"""Properties of the CIFAR-10 reference on made-up images, and its official files."""

import math
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.run import Phase
from reference_models import (
    DataSetError,
    HyperparameterError,
    TrainingDivergedError,
    cifar10,
    cifar10_files,
)
from reference_models.cifar10_files import read_cifar10
from reference_models.cifar10_images import augmented, cut_out, normalised, pad
from reference_models.distributed import World
from reference_models.memory import TrainingMemoryError
from tests.support.cifar_files import python2_pickle, stripes, write_archive, write_cifar10
from tests.support.curves import curve

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "cifar10.toml")


SMALL = {"batch_size": 50, "width": 8, "views": 2}


@pytest.fixture(autouse=True)
def short_evaluation(monkeypatch):
    monkeypatch.setattr(cifar10, "EVALUATION_BATCH", 100)


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a training on 300 striped images; `shuffled` ones have labels that mean nothing."""

    def start(*, seed=0, shuffled=False, **chosen):
        images, labels = stripes(300, seed=1)
        if shuffled:
            labels = np.random.default_rng(0).permutation(labels).tolist()
        data_dir = tmp_path / f"data{len(list(tmp_path.iterdir()))}"
        write_cifar10(data_dir, monkeypatch, train=[(images, labels)], test=stripes(100, seed=2))
        config = cifar10.configure(SMALL | chosen)
        return cifar10.train(config, seed=seed, device="cpu", data_dir=data_dir)

    return start


@pytest.mark.nightly
def test_training_learns_what_the_images_show_and_nothing_from_shuffled_labels(start):
    learned = curve(start(epochs=8))
    assert BENCHMARK.target.is_reached(max(learned))
    assert learned[0] < learned[-1]
    assert max(curve(start(epochs=8, shuffled=True))) < 50


def test_compiled_training_gives_the_curve_of_the_plain_one(start, monkeypatch):
    plain = curve(start(epochs=2))
    monkeypatch.setattr(torch, "compile", partial(compile_with_eager_kernels, torch.compile))
    phases = list(start(epochs=2, compile=1))
    assert phases[0] is Phase.COMPILE
    assert curve(phases) == pytest.approx(plain, abs=1.0)


def compile_with_eager_kernels(real, function, mode="default"):
    return real(function, backend="eager", fullgraph=True)


# The parts
def test_default_network_has_the_parameters_of_the_published_one():
    model = cifar10.build_model(cifar10.configure({}))
    # 3x3 convolutions without bias 24-64-64-256-256-256-256, whitening 12 x 24 + 24, head 256 x 10,
    # norms with a scale of ones and a bias each.
    filters = 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256)
    norms = 2 * (2 * 64 + 4 * 256)
    assert sum(item.numel() for item in model.parameters()) == filters + 312 + 2560 + norms
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_whitened_patches_have_uncorrelated_channels_of_variance_one():
    torch.manual_seed(0)
    images = torch.randn(40, 3, 32, 32).cumsum(2).cumsum(3) / 20
    model = cifar10.build_model(cifar10.configure({}))
    cifar10.whiten(model, images)
    outputs = torch.nn.functional.conv2d(images, model[0].weight)  # without its bias
    channels = outputs.transpose(0, 1).flatten(1)  # (24, N)
    second_moments = channels @ channels.T / channels.size(1)
    kept = second_moments.diagonal()[:12] > 0.9  # the others lie below the floor
    assert kept.sum() >= 6
    square = second_moments[:12, :12][kept][:, kept]
    torch.testing.assert_close(square, torch.eye(len(square)), atol=0.1, rtol=0)
    torch.testing.assert_close(channels[:12], -channels[12:])


def test_gather_gives_what_shifting_and_mirroring_one_by_one_gives():
    images = torch.arange(3 * 3 * 32 * 32.0).view(3, 3, 32, 32)
    chosen = torch.tensor([2, 0, 1, 2])
    shifts = torch.tensor([[0, 4, 2], [1, 2, 3]])
    mirrored = torch.tensor([True, False, True])
    got = augmented(pad(images, 2), chosen, shifts=shifts, mirrored=mirrored)
    for row, index in enumerate(chosen.tolist()):
        wide = np.pad(images[index].numpy(), ((0, 0), (2, 2), (2, 2)), mode="reflect")
        top, left = shifts[:, index].tolist()
        one = wide[:, top : top + 32, left : left + 32]
        one = one[:, :, ::-1] if mirrored[index] else one
        assert np.array_equal(got[row].numpy(), one)
    assert got.is_contiguous(memory_format=torch.channels_last)


def test_each_image_is_seen_mirrored_in_every_other_epoch(start, monkeypatch):
    seen = []
    real = cifar10.augmented

    def spy(padded, chosen, *, shifts, mirrored):
        seen.append(mirrored.clone())
        return real(padded, chosen, shifts=shifts, mirrored=mirrored)

    monkeypatch.setattr(cifar10, "augmented", spy)
    list(start(epochs=3))
    assert 100 < seen[0].sum() < 200
    assert torch.equal(seen[1], ~seen[0])
    assert torch.equal(seen[2], seen[0])


def test_cutout_blanks_a_square_that_ends_at_the_border():
    images = torch.ones(2, 3, 32, 32)
    cut_out(images, torch.tensor([[16, 0], [10, 31]]), size=8)
    blank = images[:, 0] == 0
    assert blank[0].nonzero().aminmax(dim=0).min.tolist() == [12, 6]
    assert blank[0].nonzero().aminmax(dim=0).max.tolist() == [19, 13]
    assert blank[1].nonzero().aminmax(dim=0).max.tolist() == [3, 31]
    assert blank.sum(dim=(1, 2)).tolist() == [64, 4 * 5]
    assert torch.equal(images[:, 0], images[:, 2])


def test_images_are_centred_and_scaled_by_channel():
    grey = torch.full((1, 3, 32, 32), 51, dtype=torch.uint8)  # 0.2 of full brightness
    got = normalised(grey, "cpu")[0, :, 0, 0]
    expected = [(0.2 - 0.4914) / 0.2470, (0.2 - 0.4822) / 0.2435, (0.2 - 0.4465) / 0.2616]
    assert got.tolist() == pytest.approx(expected, abs=1e-5)


def test_two_processes_share_each_batch_between_them():
    order = torch.arange(10)
    parts = [
        cifar10.part_of_epoch(order, 4, World(rank=rank, size=2, device="cpu")) for rank in (0, 1)
    ]
    assert [part.tolist() for part in parts] == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_six_views_weigh_unshifted_images_as_much_as_shifted_ones():
    class Sum(torch.nn.Module):
        """Outputs that grow with what lies at the left, the right and the upper left."""

        in_features = 1

        def forward(self, x):
            return torch.stack([x[:, 0, 5, 5], x[:, 0, 5, 26]], dim=1)

        def __getitem__(self, index):
            return self

    x = torch.zeros(1, 3, 32, 32)
    x[0, 0, 5, 5] = 1.0
    x[0, 0, 6, 6] = 10.0  # where the one view looks
    x[0, 0, 4, 4] = 100.0  # and the other
    one, two, six = (cifar10.viewed(Sum(), x, views=views)[0] for views in (1, 2, 6))
    assert one.tolist() == [1, 0]
    assert two.tolist() == [1, 1]
    assert six.tolist() == [2 + 110, 2 + 110]


def test_loss_that_is_no_number_ends_the_run(start, monkeypatch):
    monkeypatch.setattr(cifar10, "cut_out", lambda images, centres, size: images[0].fill_(math.inf))
    with pytest.raises(TrainingDivergedError, match="the loss is nan at the end of epoch 1"):
        list(start(epochs=3))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), TrainingMemoryError,
         "cpu ran out of memory at a batch size of 50"),
        (RuntimeError("can't allocate memory"), TrainingMemoryError, "at a batch size of 50"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
    ],
)  # fmt: skip
def test_memory_that_runs_out_is_said_with_the_batch_size(start, monkeypatch, error, kind, said):
    def step(*arguments):
        raise error

    monkeypatch.setattr(cifar10, "warm_up", step)
    with pytest.raises(kind, match=said):
        list(start())


def test_batch_larger_than_the_data_set_is_refused(start):
    with pytest.raises(HyperparameterError, match="at most the 300 training images"):
        list(start(batch_size=301))


@pytest.fixture
def batches(tmp_path, monkeypatch):
    train = [stripes(6, seed=seed) for seed in range(5)]
    test = stripes(4, seed=9)
    write_cifar10(tmp_path, monkeypatch, train=train, test=test)
    return train, test


def test_batches_are_read_in_the_order_of_their_numbers(tmp_path, batches):
    train, test = batches
    (images, labels), (test_images, test_labels) = read_cifar10(tmp_path)
    assert images.dtype == np.uint8
    assert np.array_equal(images, np.concatenate([part[0] for part in train]))
    assert labels.tolist() == [label for part in train for label in part[1]]
    assert np.array_equal(test_images, test[0])
    assert test_labels.tolist() == test[1]


def test_archive_is_unpacked_once_and_leaves_nothing_else(tmp_path, monkeypatch, batches):
    archive = write_archive(tmp_path, monkeypatch)
    (images, _), _ = read_cifar10(tmp_path)
    assert np.array_equal(images[:6], batches[0][0][0])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]
    archive.unlink()
    assert len(read_cifar10(tmp_path)[0][0]) == 30
    with pytest.raises(DataSetError, match="finishline benchmark fetch cifar10"):
        read_cifar10(tmp_path / "absent")


def test_download_that_stopped_is_told_from_a_wrong_file(tmp_path, monkeypatch, batches):
    archive = write_archive(tmp_path, monkeypatch)
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-100])
    with pytest.raises(DataSetError, match=f"is half there.*expected {len(whole):,} bytes"):
        read_cifar10(tmp_path)
    archive.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataSetError, match=f"is another file.*remove {archive}"):
        read_cifar10(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch"])
def test_changed_or_missing_batch_is_named_with_its_checksum(tmp_path, batches, name):
    path = tmp_path / "cifar-10-batches-py" / name
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataSetError, match=f"{name} is another file.*expected md5:"):
        read_cifar10(tmp_path)
    path.unlink()
    with pytest.raises(DataSetError, match=f"{name} is missing"):
        read_cifar10(tmp_path)


def test_pickle_that_asks_for_a_program_is_refused_and_not_run(tmp_path):
    class Harm:
        def __reduce__(self):
            return (tmp_path.joinpath("harm").touch, ())

    content = pickle.dumps({b"data": Harm(), b"labels": [0]}, protocol=2)
    with pytest.raises(DataSetError, match="it asks for"):
        cifar10_files.parse_batch(content, path=tmp_path / "data_batch_1")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (np.zeros((2, 3072)), [1, 10]),
        (np.zeros((2, 3072)), [1]),
        (np.zeros((2, 3000)), [1, 2]),
    ],
)
def test_batch_of_another_shape_or_label_is_refused(tmp_path, images, labels):
    content = python2_pickle(images, labels)
    with pytest.raises(DataSetError, match="is no batch of CIFAR-10"):
        cifar10_files.parse_batch(content, path=tmp_path / "data_batch_1")
