"""Small files in the format of Fashion-MNIST's four, which its reference then expects."""

import gzip
import hashlib
import struct
from dataclasses import replace

import numpy as np

from reference_models import data


def write_fashion(data_dir, monkeypatch, *, train, test):
    """Write images and labels of both parts, and let the reader expect their checksums."""
    needs, contents = data.NEEDS["fashion"], []
    for images, labels in (train, test):
        contents.append(struct.pack(">4i", 0x803, *images.shape) + images.tobytes())
        contents.append(struct.pack(">2i", 0x801, len(labels)) + labels.tobytes())
    files = []
    for file, content in zip(needs.files, contents, strict=True):
        path = data_dir / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content, mtime=0))
        sha256 = hashlib.sha256(content).hexdigest()
        size = path.stat().st_size
        files.append(replace(file, size_bytes=size, digest=f"sha256:{sha256}"))
    monkeypatch.setitem(data.NEEDS, "fashion", replace(needs, files=tuple(files), system=None))


def bands(items, *, seed):
    """Noisy images (N, 28, 28) whose class is which of ten bands of rows is bright.

    A flip moves none of them.
    """
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, 10, items, dtype=np.uint8)
    images = draws.integers(0, 120, (items, 28, 28), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label + 3 : 2 * label + 6] += 120
    return images, labels
