"""Muon: momentum with an orthogonalised update of each filter bank.

After Keller Jordan's optimiser of that name, as airbench94_muon uses it: each step rescales the
filters to a fixed norm, and the iteration's coefficients are chosen for a steep slope at zero
rather than for convergence. Banks of one shape are updated together, in a handful of kernels.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 3


def nesterov(gradient: Tensor, velocity: Tensor, momentum: float) -> Tensor:
    """Return the direction of SGD with Nesterov momentum. `velocity` is moved on."""
    velocity.mul_(momentum).add_(gradient)
    return gradient.add(velocity, alpha=momentum)


def orthogonalise(matrices: Tensor) -> Tensor:
    """Push all singular values of (K, rows, columns) towards 1 by Newton-Schulz iterations.

    Three steps leave them between about 0.5 and 1.5, close enough for Muon, unless they are
    hundreds of times smaller than the largest. In bfloat16 on a GPU.
    """
    a, b, c = NEWTON_SCHULZ
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    wide = x.size(1) <= x.size(2)
    x = x if wide else x.mT
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return (x if wide else x.mT).to(matrices.dtype)


def muon_update(
    weights: Tensor, gradients: Tensor, velocity: Tensor, momentum: float, rate: Tensor
) -> Tensor:
    """Filters (K, rows, columns) after a step: rescaled to a fixed norm, then moved."""
    direction = orthogonalise(nesterov(gradients, velocity, momentum))
    lengths = torch.linalg.vector_norm(weights, dim=(1, 2), keepdim=True, dtype=torch.float32)
    scale = (math.sqrt(weights.size(1)) / lengths).to(weights.dtype)
    return weights * scale - direction * rate.to(weights.dtype)


class Muon:
    """Momentum made orthogonal, for convolutions. Filters of one shape are updated together."""

    def __init__(self, filters: list[nn.Parameter], *, momentum: float, compiled: bool) -> None:
        shapes = sorted({tuple(item.shape) for item in filters})
        self._groups = [[f for f in filters if tuple(f.shape) == shape] for shape in shapes]
        self._velocities = [torch.zeros_like(stacked(group)) for group in self._groups]
        self._momentum = momentum
        self._update = torch.compile(muon_update) if compiled else muon_update

    def step(self, rate: Tensor) -> None:
        """Take one step from the filters' gradients, at a learning rate on the device."""
        with torch.no_grad():
            for filters, velocity in zip(self._groups, self._velocities, strict=True):
                gradients = stacked([item.grad for item in filters])
                moved = self._update(stacked(filters), gradients, velocity, self._momentum, rate)
                for item, weights in zip(filters, moved, strict=True):
                    item.copy_(weights.view(item.shape))


def stacked(filters: Sequence[Tensor]) -> Tensor:
    """Convolutions of one shape as matrices, one row a filter: (K, out, in * height * width)."""
    return torch.stack([item.detach().contiguous() for item in filters]).flatten(2)
