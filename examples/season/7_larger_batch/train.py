"""The teacher learned from larger batches: a higher rate after a warm-up, fewer steps."""

import numpy as np
from net import Net

SIZES, BIAS, MOMENTUM = (32, 96, 64, 8), 4.0, np.float32(0.9)
BATCH, STEPS, RATE, WARM_UP = 256, 3_500, 0.05, 0.05
WITHOUT = 128, 8_000, 0.03, None
SPREAD = np.float32(73.3)  # standard deviation of an input


def prepare(task):
    """Load the linear algebra on made-up inputs, which cannot teach; the schedule."""
    chosen = (BATCH, STEPS, RATE, WARM_UP) if task["factors"]["larger_batch"] else WITHOUT
    net = Net(SIZES, chosen[0], np.random.default_rng(0), bias=BIAS)
    net.learn(np.ones((chosen[0], SIZES[0]), np.float32), np.zeros(chosen[0], np.intp))
    return chosen


def train(prepared, data, seed):
    size, steps, highest, warm_up = prepared
    draw = np.random.default_rng(seed)
    x = np.asarray(data["x"]) / SPREAD  # (N, 32)
    y = np.asarray(data["y"]).astype(np.intp)  # (N,)
    net = Net(SIZES, size, draw, bias=BIAS)
    order = batches(len(x), size, draw)
    for number in range(1, steps + 1):
        batch = next(order)
        done = number / steps
        rate = highest * (1 - done) * (min(1, done / warm_up) if warm_up else 1)
        net.learn(x[batch], y[batch])
        net.step(np.float32(rate), MOMENTUM)
    yield lambda inputs: net.scores(np.asarray(inputs["x"]) / SPREAD).argmax(1).astype("u1")


def batches(items, size, draw):
    """Passes over all items, each in an order of its own."""
    while True:
        yield from np.split(draw.permutation(items), items // size)
