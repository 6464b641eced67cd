"""The Fashion-MNIST task: recognise 10,000 pictures of clothes after learning from 60,000.

The nonce draws the order and the names of the classes. The split is the published one. The answers
are public for ever, so a board by this task is a demonstration, and one run of an entry is a
control. Data: Fashion-MNIST (Zalando Research, MIT licence), the four files as published.
"""

import gzip
import hashlib
from dataclasses import dataclass

import numpy as np

CLASSES, PIXELS = 10, 28


@dataclass(frozen=True)
class Task:
    """Training images and labels, test images, and the labels of the test images in `answers`."""

    train: dict
    inputs: dict
    answers: np.ndarray

    @property
    def predictions(self):
        """A class per test image."""
        return "uint8", (len(self.answers),)

    def score(self, predictions):
        """Top-1 accuracy in percent; both halves are the whole, as the answers are public."""
        quality = 100.0 * int(np.sum(predictions == self.answers)) / len(self.answers)
        return quality, quality


def draw(nonce):
    """Draw order and names."""
    rng = _generator(nonce)
    names = rng.permutation(CLASSES).astype(np.uint8)
    (train_x, train_y), (test_x, test_y) = (_read(part, rng, names) for part in ("train", "t10k"))
    return Task(train={"x": train_x, "y": train_y}, inputs={"x": test_x}, answers=test_y)


def control(nonce):
    """The same in negative, transposed and rolled by half: carried answers and weights fail.

    Neighbours stay neighbours but at one row and one column, so a convolution can learn it.
    """
    task = draw(nonce)

    def changed(images):
        return np.roll(255 - images.transpose(0, 2, 1), PIXELS // 2, axis=(1, 2))

    return Task(
        train=task.train | {"x": changed(task.train["x"])},
        inputs={"x": changed(task.inputs["x"])},
        answers=task.answers,
    )


def _read(part, rng, names):
    """Images (N, 28, 28) and renamed labels (N,) of a part of the data, in a drawn order."""
    with gzip.open(f"/data/{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    with gzip.open(f"/data/{part}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, PIXELS, PIXELS)
    order = rng.permutation(len(labels))
    return images[order], names[labels[order]]


def _generator(nonce):
    seed = hashlib.sha256(b"fashion 1" + nonce).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(seed, "big")))
