"""The teacher learned by plain SGD: small batches, a rate that falls to 0, ten evaluations."""

import numpy as np
from net import drawn, forward, slopes

SIZES, BATCH = (32, 128, 128, 8), 128
STEPS, RATE = 28_000, 0.1
ASKS = 10
SPREAD = np.float32(73.3)  # standard deviation of an input


def prepare(task):
    """Load the linear algebra on made-up inputs, which cannot teach."""
    layers = drawn(SIZES, np.random.default_rng(0))
    slopes(layers, np.ones((BATCH, SIZES[0]), np.float32), np.zeros(BATCH, np.intp))


def train(prepared, data, seed):
    draw = np.random.default_rng(seed)
    x = np.asarray(data["x"]) / SPREAD  # (N, 32)
    y = np.asarray(data["y"]).astype(np.intp)  # (N,)
    layers = drawn(SIZES, draw)

    def predict(inputs):
        return forward(layers, np.asarray(inputs["x"]) / SPREAD)[-1].argmax(1).astype("u1")

    order = batches(len(x), draw)
    for number in range(1, STEPS + 1):
        batch = next(order)
        rate = np.float32(RATE * (1 - number / STEPS))
        for layer, slope in zip(layers, slopes(layers, x[batch], y[batch]), strict=True):
            layer -= rate * slope
        if number * ASKS % STEPS == 0:
            yield predict


def batches(items, draw):
    """Passes over all items, each in an order of its own."""
    while True:
        yield from np.split(draw.permutation(items), items // BATCH)
