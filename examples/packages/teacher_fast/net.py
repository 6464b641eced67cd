"""A net with |.| units by hand in numpy: forward, backward and AdamW in one buffer."""

from itertools import pairwise

import numpy as np

SIGN = np.uint32(1 << 31)
BETAS, DECAY, TINY = (0.9, 0.99), 0.01, 1e-8


class Net:
    """Weights, slopes and moments, each in one buffer: a step of AdamW is ten calls.

    Biases of inner layers are drawn from -bias to bias: wide ones save a third of the steps.
    """

    def __init__(self, sizes, draw, *, bias):
        count = sum((i + 1) * o for i, o in pairwise(sizes))
        self.weights, self.slopes, self.mean, self.square, self.spare = np.zeros(
            (5, count), np.float32
        )
        self.layers, self.gradients, at = [], [], 0
        for i, o in pairwise(sizes):
            end = at + (i + 1) * o
            layer = self.weights[at:end].reshape(i + 1, o)  # the last row is the bias
            layer[:] = draw.uniform(-1, 1, layer.shape) / np.sqrt(i)
            self.layers.append((layer[:-1], layer[-1]))
            gradient = self.slopes[at:end].reshape(i + 1, o)
            self.gradients.append((gradient[:-1], gradient[-1]))
            at = end
        for _, biases in self.layers[1:-1]:
            biases[:] = draw.uniform(-bias, bias, len(biases))

    def forward(self, x):
        """Values before |.| and after it of both hidden layers, and the scores."""
        (w1, b1), (w2, b2), (w3, b3) = self.layers
        z1 = x @ w1
        z1 += b1
        h1 = np.abs(z1)
        z2 = h1 @ w2
        z2 += b2
        h2 = np.abs(z2)
        scores = h2 @ w3
        scores += b3
        return z1, h1, z2, h2, scores

    def backward(self, x, y):
        """Slopes of the mean cross entropy of a batch."""
        z1, h1, z2, h2, scores = self.forward(x)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        scores[np.arange(len(y)), y] -= 1
        scores *= np.float32(1 / len(y))
        (g1, c1), (g2, c2), (g3, c3) = self.gradients
        (_, _), (w2, _), (w3, _) = self.layers
        np.matmul(h2.T, scores, out=g3)
        np.sum(scores, axis=0, out=c3)
        back = turned(scores @ w3.T, z2)
        np.matmul(h1.T, back, out=g2)
        np.sum(back, axis=0, out=c2)
        back = turned(back @ w2.T, z1)
        np.matmul(x.T, back, out=g1)
        np.sum(back, axis=0, out=c1)

    def step(self, number, rate):
        """AdamW: moments, decay, and the corrected step."""
        first, second = BETAS
        self.mean += np.float32(1 - first) * (self.slopes - self.mean)
        np.square(self.slopes, out=self.spare)
        self.spare -= self.square
        self.spare *= np.float32(1 - second)
        self.square += self.spare
        np.sqrt(self.square, out=self.spare)
        root = np.sqrt(1 - second**number)
        self.spare += np.float32(TINY * root)
        np.divide(self.mean, self.spare, out=self.spare)
        self.spare *= np.float32(rate * root / (1 - first**number))
        self.weights *= np.float32(1 - rate * DECAY)
        self.weights -= self.spare


def turned(values, like):
    """Values with their signs flipped where `like` is negative, in place: the slope of |.|."""
    bits = values.view(np.uint32)
    bits ^= like.view(np.uint32) & SIGN
    return values


def batches(items, size, draw):
    """Passes over all items, each in an order of its own."""
    while True:
        yield from np.split(draw.permutation(items), items // size)
