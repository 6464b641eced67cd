"""The official files of CIFAR-10: what is read, and what is refused with a sentence."""

import pickle

import numpy as np
import pytest

from reference_models import DataSetError, cifar10_files
from reference_models.cifar10_files import read_cifar10
from tests.support.cifar_files import python2_pickle, stripes, write_archive, write_cifar10


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


def test_missing_data_set_is_said_with_the_command_that_gets_it(tmp_path):
    with pytest.raises(DataSetError, match="there is no CIFAR-10 in") as caught:
        read_cifar10(tmp_path / "absent")
    said = str(caught.value)
    assert "curl" in said
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz" in said
    assert str(tmp_path / "absent" / "cifar-10-python.tar.gz") in said


def test_download_that_stopped_is_told_from_a_wrong_file(tmp_path, monkeypatch, batches):
    archive = write_archive(tmp_path, monkeypatch)
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-100])
    with pytest.raises(DataSetError, match=f"stopped at {len(whole) - 100:,} bytes") as caught:
        read_cifar10(tmp_path)
    assert f"expected {len(whole):,} bytes" in str(caught.value)
    archive.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(DataSetError, match="has the SHA-256") as caught:
        read_cifar10(tmp_path)
    assert cifar10_files.ARCHIVE_SHA256 in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch"])
def test_changed_or_missing_batch_is_named_with_its_checksum(tmp_path, batches, name):
    path = tmp_path / "cifar-10-batches-py" / name
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataSetError, match=f"{name} has {len(content) // 2} bytes") as caught:
        read_cifar10(tmp_path)
    expected = {**cifar10_files.TRAIN_MD5, **cifar10_files.TEST_MD5}[name]
    assert f"the MD5 {expected}" in str(caught.value)
    path.unlink()
    with pytest.raises(DataSetError, match=f"{name} cannot be read"):
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


def test_small_files_of_these_tests_are_what_plain_pickle_reads():
    images, labels = stripes(3, seed=1)
    batch = pickle.loads(  # noqa: S301 - made in the line before
        python2_pickle(images.reshape(3, -1), labels), encoding="latin1"
    )
    assert batch["labels"] == labels
    assert np.array_equal(batch["data"].reshape(-1, 3, 32, 32), images)
