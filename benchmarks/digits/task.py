"""The digits task: recognise 599 handwritten digits after learning from 1,198.

The nonce draws the order, the split and the names of the classes. The answers are public for ever
all the same, so a board by this task is a demonstration, and one run of an entry is a control.
Data: Optical recognition of handwritten digits (UCI), as scikit-learn ships it.
"""

import gzip
import hashlib
from dataclasses import dataclass

import numpy as np

DATA = "/data/digits.csv.gz"
TEST_ITEMS = 599


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
    """Draw order, split and names."""
    rng = _generator(nonce)
    with gzip.open(DATA) as file:
        rows = np.loadtxt(file, delimiter=",", dtype=np.uint8)  # (1797, 65)
    rows = rng.permutation(rows)
    images, labels = (
        rows[:, :-1].reshape(-1, 8, 8),
        rng.permutation(10).astype(np.uint8)[rows[:, -1]],
    )
    return Task(
        train={"x": images[TEST_ITEMS:], "y": labels[TEST_ITEMS:]},
        inputs={"x": images[:TEST_ITEMS]},
        answers=labels[:TEST_ITEMS],
    )


def control(nonce):
    """The same with the pixels in another order: public images and weights are worthless."""
    task = draw(nonce)
    order = _generator(b"control" + nonce).permutation(64)

    def permuted(images):
        return images.reshape(-1, 64)[:, order].reshape(-1, 8, 8)

    return Task(
        train=task.train | {"x": permuted(task.train["x"])},
        inputs={"x": permuted(task.inputs["x"])},
        answers=task.answers,
    )


def _generator(nonce):
    seed = hashlib.sha256(b"digits 1" + nonce).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(seed, "big")))
