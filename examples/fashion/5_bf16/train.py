"""The network in bfloat16, its weights in float32."""

import numpy as np
import torch
from torch import nn

EPOCHS, BATCH, RATE, PEAK = 4, 256, 0.4, 0.25


def layer(channels_in, channels_out, *pool, kernel=3, stride=1):
    """Convolution, pooling, norm, ReLU. What follows the pooling has a quarter to do."""
    return [
        nn.Conv2d(channels_in, channels_out, kernel, stride=stride, padding=1, bias=False),
        *pool,
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    ]


def build_model():
    net = nn.Sequential(  # (B, 1, 28, 28)
        *layer(1, 16, kernel=4, stride=2),  # (B, 16, 14, 14)
        *layer(16, 32, nn.MaxPool2d(2)),  # (B, 32, 7, 7)
        *layer(32, 64, nn.MaxPool2d(2)),  # (B, 64, 3, 3)
        *layer(64, 64),  # (B, 64, 3, 3)
        nn.Flatten(),  # (B, 576)
        nn.Linear(576, 10),
    )
    return net.to(memory_format=torch.channels_last)


def optimiser_of(net):
    return torch.optim.SGD(
        net.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4, nesterov=True
    )


def step(net, optimiser, x, y):
    with torch.autocast("cpu", torch.bfloat16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def prepare(task):
    """Take a step on made-up images, which cannot teach."""
    torch.set_num_threads(task["threads"])
    net = build_model()
    optimiser = optimiser_of(net)
    step(net, optimiser, torch.randn(BATCH, 1, 28, 28), torch.randint(10, (BATCH,)))


def train(prepared, data, seed):
    torch.manual_seed(seed)
    x, y = pixels(data), torch.from_numpy(np.array(data["y"], np.int64))
    net = build_model()
    optimiser = optimiser_of(net)

    def predict(inputs):
        net.eval()
        with torch.no_grad():
            parts = [net(part).argmax(1) for part in pixels(inputs).split(1000)]
        net.train()
        return torch.cat(parts).numpy().astype(np.uint8)

    steps = len(x) // BATCH
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda n: share(n / steps / EPOCHS))
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH)[:steps]:
            step(net, optimiser, x[batch], y[batch])
            schedule.step()
        yield predict


def share(done):
    """Share of the highest rate: up over the first quarter, then down to 0."""
    return min(done / PEAK, (1 - done) / (1 - PEAK))


def pixels(arrays):
    """Images (N, 1, 28, 28) from 0 to 1."""
    return torch.from_numpy(np.array(arrays["x"], np.float32)).unsqueeze(1) / 255
