"""A net of |.| units by hand in numpy, in place: nothing is allocated between two steps.

A layer is one matrix (inputs + 1, outputs): the last row is the bias.
"""

from itertools import pairwise

import numpy as np

SIGN = np.uint32(1 << 31)


class Net:
    """Weights, slopes and velocities, each in one buffer: a step is five calls for all layers.

    Weights are drawn between -1 and 1 over the root of a layer's inputs, and biases between the
    hidden layers from -bias to bias: |.| then folds at many places.
    """

    def __init__(self, sizes, batch, draw, *, bias):
        count = sum((i + 1) * o for i, o in pairwise(sizes))
        self.weights, self.slopes, self.velocity, self.spare = np.zeros((4, count), np.float32)
        self.layers, self.found = (views(each, sizes) for each in (self.weights, self.slopes))
        for layer in self.layers:
            layer[:] = draw.uniform(-1, 1, layer.shape) / np.sqrt(len(layer) - 1)
        for layer in self.layers[1:-1]:
            layer[-1] = draw.uniform(-bias, bias, layer.shape[1])
        self.rows = np.arange(batch)
        self.values, self.folded, self.back = (
            [np.empty((batch, o), np.float32) for o in sizes[1:]] for _ in range(3)
        )

    def scores(self, x):
        """Scores of the classes, for any number of items."""
        *hidden, last = self.layers
        for layer in hidden:
            x = x @ layer[:-1]
            x += layer[-1]
            np.abs(x, out=x)
        return x @ last[:-1] + last[-1]

    def learn(self, x, y):
        """Slopes of the mean cross entropy of a batch."""
        inputs = [x, *self.folded[:-1]]
        for layer, come, values, folded in zip(
            self.layers, inputs, self.values, self.folded, strict=True
        ):
            np.matmul(come, layer[:-1], out=values)
            values += layer[-1]
            np.abs(values, out=folded)
        back = self.back[-1]
        np.subtract(self.values[-1], self.values[-1].max(axis=1, keepdims=True), out=back)
        np.exp(back, out=back)
        back /= back.sum(axis=1, keepdims=True)
        back[self.rows, y] -= 1
        back /= np.float32(len(y))
        for at in range(len(self.layers) - 1, -1, -1):
            np.matmul(inputs[at].T, self.back[at], out=self.found[at][:-1])
            np.add.reduce(self.back[at], axis=0, out=self.found[at][-1])
            if at:
                np.matmul(self.back[at], self.layers[at][:-1].T, out=self.back[at - 1])
                turn(self.back[at - 1], self.values[at - 1])

    def step(self, rate, momentum):
        """Nesterov's step: down the slope, and on with the velocity that this slope leads to."""
        self.velocity *= momentum
        self.velocity += self.slopes
        np.multiply(self.velocity, momentum, out=self.spare)
        self.spare += self.slopes
        self.spare *= rate
        self.weights -= self.spare


def views(buffer, sizes):
    """The layers within one buffer."""
    found, at = [], 0
    for i, o in pairwise(sizes):
        end = at + (i + 1) * o
        found.append(buffer[at:end].reshape(i + 1, o))
        at = end
    return found


def turn(values, like):
    """Flip signs where `like` is negative, bit by bit: the slope of |.| without a product."""
    bits = values.view(np.uint32)
    bits ^= like.view(np.uint32) & SIGN
