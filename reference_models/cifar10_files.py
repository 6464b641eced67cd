"""The official CIFAR-10 files, read without trusting them.

A data folder holds the files that torchvision and most tutorials leave there: the folder
`cifar-10-batches-py`, or the archive `cifar-10-python.tar.gz`, which is unpacked beside itself.
Every file is compared with its published checksum before it is read, and is read by an unpickler
that knows arrays of bytes and nothing else.

Checksums: MD5 of the archive on https://www.cs.toronto.edu/~kriz/cifar.html, of its files in
torchvision.datasets.CIFAR10; SHA-256 of the archive in keras.datasets.cifar10.
"""

import hashlib
import io
import pickle
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reference_models import DataSetError

FOLDER = "cifar-10-batches-py"
ARCHIVE = "cifar-10-python.tar.gz"
ARCHIVE_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
ARCHIVE_BYTES = 170_498_071
ARCHIVE_SHA256 = "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"
TRAIN_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
}
TEST_MD5 = {"test_batch": "40351d587109b95175f43aff81a1287e"}
CLASSES = 10
CHUNK_BYTES = 1 << 20

Part = tuple[NDArray[np.uint8], NDArray[np.uint8]]


def read_cifar10(data_dir: Path) -> tuple[Part, Part]:
    """Training and test images (N, 3, 32, 32) with their labels (N,), as bytes.

    Raises DataSetError with the remedy if files are missing, half there, or other than published.
    """
    folder = data_dir / FOLDER
    if not folder.is_dir():
        unpack(data_dir / ARCHIVE)
    return read_part(folder, TRAIN_MD5), read_part(folder, TEST_MD5)


def read_part(folder: Path, md5_by_name: dict[str, str]) -> Part:
    """The images and labels of some batch files, in the order of their names."""
    parts = [read_batch(folder / name, md5=md5) for name, md5 in md5_by_name.items()]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def read_batch(path: Path, *, md5: str) -> Part:
    """One batch file. Raises DataSetError unless its checksum is the published one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _wrong(path, f"cannot be read ({error.strerror})", f"a file of MD5 {md5}") from error
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise _wrong(path, f"has {len(content)} bytes and the MD5 {found}", f"the MD5 {md5}")
    return parse_batch(content, path=path)


def parse_batch(content: bytes, *, path: Path) -> Part:
    """The images and labels of one pickled batch. Raises DataSetError if it holds anything else."""
    try:
        batch = BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
        images, labels = batch[b"data"], np.array(batch[b"labels"], dtype=np.int64)
        good = images.dtype == np.uint8 and images.shape == (len(labels), 3 * 32 * 32)
        if not good or labels.min() < 0 or labels.max() >= CLASSES:
            raise ValueError(f"the images have shape {images.shape}")
    except Exception as error:  # An unpickler given wrong bytes can raise nearly anything.
        raise _wrong(path, f"is no batch of CIFAR-10 ({error})", "images and labels") from error
    return images.reshape(-1, 3, 32, 32), labels.astype(np.uint8)


class BatchUnpickler(pickle.Unpickler):
    """Builds dictionaries, lists, numbers, bytes and numpy arrays; refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        """The few names that a pickled array of bytes needs. Raises UnpicklingError otherwise."""
        if (module, name) in (
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
        ):
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def unpack(archive: Path) -> None:
    """Check the archive and unpack its folder beside it, whole or not at all."""
    check_archive(archive)
    try:
        with tempfile.TemporaryDirectory(dir=archive.parent) as beside:
            with tarfile.open(archive) as tar:
                tar.extractall(beside, filter="data")
            (Path(beside) / FOLDER).replace(archive.parent / FOLDER)
    except (OSError, tarfile.TarError) as error:
        if (archive.parent / FOLDER).is_dir():  # Another process of this training was faster.
            return
        raise _wrong(archive, f"cannot be unpacked ({error})", f"the folder {FOLDER}") from error


def check_archive(archive: Path) -> None:
    """Raise DataSetError if the archive is missing, cut short, or not the published one."""
    if not archive.is_file():
        raise DataSetError(
            f"there is no CIFAR-10 in {archive.parent}; get it with"
            f" `curl --create-dirs -L -o {archive} {ARCHIVE_URL}`",
            file=str(archive),
            field="data_set.name",
            expected=f"the folder {FOLDER} or the archive {ARCHIVE}",
        )
    size = archive.stat().st_size
    if size < ARCHIVE_BYTES:
        raise DataSetError(
            f"the download stopped at {size:,} bytes; continue it with"
            f" `curl -L -C - -o {archive} {ARCHIVE_URL}`",
            file=str(archive),
            field="data_set.sha256",
            expected=f"{ARCHIVE_BYTES:,} bytes",
        )
    digest = hashlib.sha256()
    with archive.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != ARCHIVE_SHA256:
        raise _wrong(archive, f"has the SHA-256 {digest.hexdigest()}", ARCHIVE_SHA256)


def _wrong(path: Path, what: str, expected: str) -> DataSetError:
    return DataSetError(
        f"{path.name} {what}; remove {path} and get the archive again with"
        f" `curl -L -o {ARCHIVE} {ARCHIVE_URL}`",
        file=str(path),
        field="data_set.sha256",
        expected=expected,
    )
