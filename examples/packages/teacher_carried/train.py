"""The fast net from a start that 150 other draws taught (examples/teacher_start.py made it)."""

import base64
from pathlib import Path

import numpy as np
from net import Net, batches

SIZES, BIAS = (32, 96, 64, 8), 4.0
STEPS, BATCH, RATE, WARM_UP = 4_000, 256, 8e-3, 0.1
ASKED_AT = [round(share * STEPS) for share in (0.8, 0.85, 0.9, 0.95, 1)]
SPREAD = np.float32(73.3)  # standard deviation of an input
START = Path(__file__).with_name("start.txt")


def prepare(task):
    """Load the linear algebra on made-up inputs, and the start: None where it is switched off."""
    net = Net(SIZES, np.random.default_rng(0), bias=BIAS)
    net.backward(np.ones((BATCH, SIZES[0]), np.float32), np.zeros(BATCH, np.intp))
    if task["factors"]["carried"]:
        return np.frombuffer(base64.b64decode(START.read_text()), "<f2")
    return None


def train(prepared, data, seed):
    draw = np.random.default_rng(seed)
    x = np.asarray(data["x"]) / SPREAD  # (N, 32)
    y = np.asarray(data["y"]).astype(np.intp)  # (N,)
    net = Net(SIZES, draw, bias=BIAS)
    if prepared is not None:
        net.weights[:] = prepared

    def predict(inputs):
        return net.forward(np.asarray(inputs["x"]) / SPREAD)[-1].argmax(1).astype("u1")

    order = batches(len(x), BATCH, draw)
    for number in range(1, STEPS + 1):
        batch = next(order)
        net.backward(x[batch], y[batch])
        done = (number - 1) / STEPS
        net.step(number, RATE * min(done / WARM_UP, (1 - done) / (1 - WARM_UP)))
        if number in ASKED_AT:
            yield predict
