"""The three nearest training images vote. One evaluation, nothing to train."""

import numpy as np


def prepare(task):
    """Nothing to prepare."""


def train(prepared, data, seed):
    known, labels = pixels(data), np.asarray(data["y"])

    def predict(inputs):
        # Squared distances less a term that is the same for all training images: (tests, N).
        distances = (known**2).sum(1) - 2 * pixels(inputs) @ known.T
        votes = np.eye(10)[labels[distances.argsort(1)[:, :3]]].sum(1)  # (tests, 10)
        return votes.argmax(1).astype(np.uint8)

    yield predict


def pixels(arrays):
    return np.asarray(arrays["x"]).reshape(-1, 64).astype(np.float64)
