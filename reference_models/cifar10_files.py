"""The official CIFAR-10 files, read without trusting them.

A data folder holds the files that torchvision and most tutorials leave there: the folder
`cifar-10-batches-py`, or the archive `cifar-10-python.tar.gz`, which is unpacked next to itself.
Every file is compared with its published checksum before it is read, by an unpickler that only
knows arrays of bytes.
"""

import io
import pickle
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference_models import DataSetError
from reference_models.data import CIFAR10_ARCHIVE, CIFAR10_FOLDER, NEEDS, read_whole, require_data

CLASSES = 10
Part = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def read_cifar10(data_dir: Path) -> tuple[Part, Part]:
    """Read images (N, 3, 32, 32) and labels as bytes, training then test. Raises DataSetError."""
    if not (data_dir / CIFAR10_FOLDER).is_dir():
        unpack(data_dir)
    *train, test = (
        parse_batch(read_whole("cifar10", file, data_dir), path=data_dir / file.name)
        for file in NEEDS["cifar10"].files
    )
    images, labels = zip(*train, strict=True)
    return (np.concatenate(images), np.concatenate(labels)), test


def parse_batch(content: bytes, *, path: Path) -> Part:
    """Read images and labels of one pickled batch. Raises DataSetError for anything else."""
    try:
        batch = BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
        images, labels = batch[b"data"], np.array(batch[b"labels"], dtype=np.int64)
        good = images.dtype == np.uint8 and images.shape == (len(labels), 3 * 32 * 32)
        if not good or labels.min() < 0 or labels.max() >= CLASSES:
            raise ValueError(f"the images have shape {images.shape}")
    except Exception as error:  # An unpickler given wrong bytes can raise nearly anything.
        raise DataSetError(
            f"it is no batch of CIFAR-10 ({error})", file=str(path), expected="images and labels"
        ) from error
    return images.reshape(-1, 3, 32, 32), labels.astype(np.uint8)


class BatchUnpickler(pickle.Unpickler):
    """Builds dictionaries, lists, numbers, bytes and numpy arrays. Refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the few names in a pickled array of bytes. Raises UnpicklingError."""
        if (module, name) in (
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
        ):
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def unpack(data_dir: Path) -> None:
    """Check the archive and unpack its folder next to it, in one move."""
    require_data("cifar10", data_dir, {}, hashed=True)
    archive, folder = data_dir / CIFAR10_ARCHIVE, data_dir / CIFAR10_FOLDER
    try:
        with tempfile.TemporaryDirectory(dir=data_dir) as beside:
            with tarfile.open(archive) as tar:
                tar.extractall(beside, filter="data")
            (Path(beside) / CIFAR10_FOLDER).replace(folder)
    except (OSError, tarfile.TarError) as error:
        if folder.is_dir():  # Another process of this training was faster.
            return
        raise DataSetError(f"it cannot be unpacked: {error}", file=str(archive)) from error
