"""A net of |.| units by hand in numpy: its layers, its scores, and the slopes of its loss.

A layer is one matrix (inputs + 1, outputs): the last row is the bias.
"""

from itertools import pairwise

import numpy as np


def drawn(sizes, draw):
    """Layers with every value between -1 and 1, over the root of a layer's inputs."""
    return [
        (draw.uniform(-1, 1, (i + 1, o)) / np.sqrt(i)).astype(np.float32)
        for i, o in pairwise(sizes)
    ]


def forward(layers, x):
    """Values of each layer before |.|, the scores of the classes last."""
    values = [x @ layers[0][:-1] + layers[0][-1]]  # (B, width)
    for layer in layers[1:]:
        values.append(np.abs(values[-1]) @ layer[:-1] + layer[-1])
    return values


def slopes(layers, x, y):
    """Slopes of the mean cross entropy of a batch, shaped as the layers."""
    *hidden, scores = forward(layers, x)
    back = np.exp(scores - scores.max(axis=1, keepdims=True))
    back /= back.sum(axis=1, keepdims=True)
    back[np.arange(len(y)), y] -= 1
    back /= np.float32(len(y))
    found = []
    for layer, values in zip(layers[:0:-1], reversed(hidden), strict=True):
        found.append(slope(np.abs(values), back))
        back = (back @ layer[:-1].T) * np.sign(values)
    return [slope(x, back), *reversed(found)]


def slope(inputs, back):
    """Slope of one layer from its inputs and the slope of its outputs."""
    return np.vstack([inputs.T @ back, back.sum(axis=0)])
