"""Ridge regression on all products of two inputs, in one linear solve. It misses the target."""

import numpy as np

SPREAD, RIDGE, BLOCK, CLASSES = 73.3, 1.0, 8_192, 8


def prepare(task):
    """Load the linear algebra on made-up matrices."""
    np.linalg.solve(np.eye(8), np.ones((8, CLASSES)))


def train(prepared, data, seed):
    x, y = np.asarray(data["x"]), np.asarray(data["y"])
    wanted = np.eye(CLASSES, dtype=np.float32)
    gram, target = 0.0, 0.0
    for start in range(0, len(x), BLOCK):
        part = features(x[start : start + BLOCK])  # (B, F)
        gram = gram + (part.T @ part).astype(np.float64)
        target = target + part.T @ wanted[y[start : start + BLOCK]]
    weights = np.linalg.solve(gram + RIDGE * np.eye(len(gram)), target).astype(np.float32)

    def predict(inputs):
        tests = np.asarray(inputs["x"])
        parts = np.split(tests, len(tests) // BLOCK)
        return np.concatenate([(features(p) @ weights).argmax(1) for p in parts]).astype(np.uint8)

    yield predict


def features(x):
    """1, the inputs, and their products: (B, 1 + D + D (D + 1) / 2)."""
    x = x / np.float32(SPREAD)
    first, second = np.triu_indices(x.shape[1])
    one = np.ones((len(x), 1), np.float32)
    return np.hstack([one, x, x[:, first] * x[:, second]])
