"""The teacher task: learn a network that is drawn for this run, from 262,144 of its answers.

The teacher has 80 units of |.| between 32 inputs and 8 classes. Its form is public and its
directions are drawn with the inputs, so there are no answers to carry and no table to look up.
All figures are integers below 2**24: exact in single precision, in any order of summation.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

INPUTS, UNITS, CLASSES = 32, 80, 8
TRAIN_ITEMS, HALF_ITEMS = 262_144, 16_384
LARGEST = 127
DIRECTION_LENGTH = 160
BLOCK_ITEMS = 16_384


@dataclass(frozen=True)
class Task:
    """Inputs with their classes to learn from, inputs of both halves, and their classes."""

    train: dict
    inputs: dict
    answers: np.ndarray

    @property
    def predictions(self):
        """A class per item."""
        return shapes()["predictions"]

    def score(self, predictions):
        """Top-1 accuracy in percent on each half: the first stops the clock."""
        right = predictions == self.answers
        return tuple(100 * float(np.mean(half)) for half in np.split(right, 2))


def shapes():
    """Types and shapes of all arrays: the same for every draw."""
    return {
        "train": {"x": ("int8", (TRAIN_ITEMS, INPUTS)), "y": ("uint8", (TRAIN_ITEMS,))},
        "inputs": {"x": ("int8", (2 * HALF_ITEMS, INPUTS))},
        "predictions": ("uint8", (2 * HALF_ITEMS,)),
    }


def draw(nonce):
    """Draw a teacher and its inputs. Equal nonces give equal bytes."""
    seed = hashlib.sha256(b"teacher 2" + nonce).digest()
    rng = np.random.Generator(np.random.PCG64(int.from_bytes(seed, "big")))
    directions = _directions(rng)  # (INPUTS, UNITS)
    votes = rng.choice(np.array([-1, 1], np.float32), (UNITS, CLASSES))
    items = TRAIN_ITEMS + 2 * HALF_ITEMS
    x = rng.integers(-LARGEST, LARGEST, (items, INPUTS), np.int8, endpoint=True)
    scores = _scores(x, directions, votes)  # (items, CLASSES)
    scores -= np.rint(scores[:TRAIN_ITEMS].mean(axis=0, dtype=np.float64)).astype(np.float32)
    y = scores.argmax(axis=1).astype(np.uint8)
    return Task(
        train={"x": x[:TRAIN_ITEMS], "y": y[:TRAIN_ITEMS]},
        inputs={"x": x[TRAIN_ITEMS:]},
        answers=y[TRAIN_ITEMS:],
    )


def _directions(rng):
    """Directions of equal length, rounded to integers."""
    drawn = rng.integers(-LARGEST, LARGEST, (INPUTS, UNITS), endpoint=True)
    lengths = np.sqrt((drawn * drawn).sum(axis=0))
    return np.rint(drawn * (DIRECTION_LENGTH / lengths)).astype(np.float32)


def _scores(x, directions, votes):
    """Votes of the units' absolute values, block by block: the units would fill 94 MB."""
    blocks = np.split(x, len(x) // BLOCK_ITEMS)
    return np.concatenate([np.abs(block @ directions) @ votes for block in blocks])
