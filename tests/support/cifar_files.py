"""Small files in the format of the official CIFAR-10 archive, pickled as Python 2 did in 2009."""

import hashlib
import io
import struct
import tarfile
from dataclasses import replace

import numpy as np

from reference_models import data


def python2_pickle(images, labels):
    """A batch file byte by byte: protocol 2, byte strings, an array of uint8 (N, 3072)."""
    text = bytes(images.astype(np.uint8).tobytes())
    rows, columns = images.shape
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"  # an empty one
        + b"(K\x01(" + number(rows) + number(columns) + b"t"  # version and shape
        + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"  # noqa: E501
        + b"\x89T" + struct.pack("<i", len(text)) + text + b"tb"
    )  # fmt: skip
    names = b"]" + b"".join(string(f"{label}.png") + b"a" for label in labels)
    numbers = b"](" + b"".join(number(label) for label in labels) + b"e"
    return (
        b"\x80\x02}("
        + string("batch_label") + string("a batch")
        + string("labels") + numbers
        + string("data") + array
        + string("filenames") + names
        + b"u."
    )  # fmt: skip


def number(value):
    return b"J" + struct.pack("<i", value)


def string(text):
    return b"U" + bytes([len(text)]) + text.encode()


def write_cifar10(data_dir, monkeypatch, *, train, test):
    """Write the folder of batches and let the reader expect their checksums."""
    (data_dir / "cifar-10-batches-py").mkdir(parents=True)
    names = [f"data_batch_{index}" for index in range(1, len(train) + 1)]
    files = []
    for name, (images, labels) in zip([*names, "test_batch"], [*train, test], strict=True):
        place = f"cifar-10-batches-py/{name}"
        md5 = write_batch(data_dir / place, images, labels)
        files.append(data.DataFile(place, digest=f"md5:{md5}"))
    needs = replace(data.NEEDS["cifar10"], files=tuple(files))
    monkeypatch.setitem(data.NEEDS, "cifar10", needs)


def write_batch(path, images, labels):
    content = python2_pickle(images.reshape(len(images), -1), [int(label) for label in labels])
    path.write_bytes(content)
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def write_archive(data_dir, monkeypatch):
    """Pack the folder into the archive, remove the folder, let the reader expect the archive."""
    folder = data_dir / "cifar-10-batches-py"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    archive = data_dir / "cifar-10-python.tar.gz"
    archive.write_bytes(packed.getvalue())
    sha256 = hashlib.sha256(packed.getvalue()).hexdigest()
    needs = data.NEEDS["cifar10"]
    file = replace(needs.archive, size_bytes=len(packed.getvalue()), digest=f"sha256:{sha256}")
    monkeypatch.setitem(data.NEEDS, "cifar10", replace(needs, archive=file))
    return archive


def stripes(items, *, seed):
    """Noisy images (N, 3, 32, 32) whose class is which of ten bands of rows is bright.

    The bands are mirrored by no flip and moved by no shift of two pixels out of their rows.
    """
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, 10, items)
    images = draws.integers(0, 120, (items, 3, 32, 32))
    for image, label in zip(images, labels, strict=True):
        image[:, 3 * label + 1 : 3 * label + 4] += 120
    return images.astype(np.uint8), [int(label) for label in labels]
