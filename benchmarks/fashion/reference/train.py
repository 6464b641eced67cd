"""Reference of Fashion-MNIST as a package: reference_models/fashion.py at batch size 256."""

import numpy as np
import torch
from torch import nn

EPOCHS, BATCH, RATE, WARM_UP = 4, 256, 0.4, 0.25
MEAN, STD = 72.94, 90.02  # of the training images' bytes


def layer(channels_in, channels_out, *pool, kernel=3, stride=1):
    """Convolution, pooling, norm, ReLU. What follows the pooling has a quarter to do."""
    return [
        nn.Conv2d(channels_in, channels_out, kernel, stride=stride, padding=1, bias=False),
        *pool,
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    ]


def build_model():
    return nn.Sequential(  # (B, 1, 28, 28)
        *layer(1, 16, kernel=4, stride=2),  # (B, 16, 14, 14)
        *layer(16, 32, nn.MaxPool2d(2)),  # (B, 32, 7, 7)
        *layer(32, 64, nn.MaxPool2d(2)),  # (B, 64, 3, 3)
        *layer(64, 64),  # (B, 64, 3, 3)
        nn.Flatten(),  # (B, 576)
        nn.Linear(576, 10),
    )


class Training:
    """A net and its optimiser."""

    def __init__(self):
        self.net = build_model().to(memory_format=torch.channels_last)
        self.optimiser = torch.optim.SGD(
            self.net.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.steps = 0

    def step(self, x, y, *, of):
        """Take a step of `of`."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate_at(self.steps, of)
        loss = nn.functional.cross_entropy(self.net(normalised(x)), y)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.steps += 1

    def classes(self, x):
        self.net.eval()
        with torch.no_grad():
            parts = [self.net(normalised(part)).argmax(1) for part in x.split(1000)]
        self.net.train()
        return torch.cat(parts).numpy().astype(np.uint8)


def rate_at(step, steps):
    """Up linearly over the first share of all steps, then linearly to zero."""
    peak = WARM_UP * steps
    if step < peak:
        return RATE * (step + 1) / (peak + 1)
    return RATE * (steps - step) / (steps - peak)


def prepare(task):
    """Take two steps and an evaluation on made-up images, which cannot teach."""
    torch.set_num_threads(task["threads"])
    training = Training()
    x = torch.randint(256, (1000, 1, 28, 28), dtype=torch.uint8)
    for _ in range(2):
        training.step(x[:BATCH], torch.randint(10, (BATCH,)), of=2)
    training.classes(x)


def train(prepared, data, seed):
    torch.manual_seed(seed)
    training = Training()
    x, y = pixels(data), torch.from_numpy(np.array(data["y"], np.int64))
    images = torch.cat((x, x.flip(3)))  # the second half mirrored
    draws = torch.Generator().manual_seed(seed)
    mirrored = torch.rand(len(x), generator=draws) < 0.5
    steps = len(x) // BATCH
    for epoch in range(1, EPOCHS + 1):
        shuffled = torch.randperm(len(x), generator=draws)
        chosen = shuffled + len(x) * (mirrored ^ (epoch % 2 == 0))[shuffled]
        for batch in chosen.split(BATCH)[:steps]:
            training.step(images[batch], y[batch % len(x)], of=steps * EPOCHS)
        yield lambda inputs: training.classes(pixels(inputs))


def pixels(arrays):
    """Images (N, 1, 28, 28) as bytes."""
    return torch.from_numpy(np.array(arrays["x"])).unsqueeze(1)


def normalised(x):
    return (x.float() - MEAN) / STD
