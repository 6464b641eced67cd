"""Muon held against torch's SGD and against the singular value decomposition."""

import pytest
import torch
from torch import nn

from reference_models.muon import Muon, nesterov, orthogonalise


def test_momentum_is_that_of_torchs_nesterov_sgd():
    torch.manual_seed(0)
    start = torch.randn(4, 6)
    theirs = nn.Parameter(start.clone())
    optimiser = torch.optim.SGD([theirs], lr=0.1, momentum=0.6, nesterov=True)
    ours, velocity = start.clone(), torch.zeros_like(start)
    for _ in range(5):
        gradient = torch.randn(4, 6)
        theirs.grad = gradient.clone()
        optimiser.step()
        ours -= 0.1 * nesterov(gradient, velocity, 0.6)
        torch.testing.assert_close(ours, theirs.detach())


@pytest.mark.parametrize("shape", [(16, 40), (40, 16), (24, 24)])
def test_singular_values_are_pushed_towards_one_and_directions_kept(shape):
    torch.manual_seed(1)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    before = torch.linspace(1.0, 8.0, min(shape))
    matrix = left @ torch.diag(before) @ right
    after = torch.diag(left.mT @ orthogonalise(matrix[None])[0] @ right.mT)
    assert before.max() / before.min() == pytest.approx(8.0)
    assert after.min() > 0.5
    assert after.max() < 1.3
    rest = orthogonalise(matrix[None])[0] - left @ torch.diag(after) @ right
    assert rest.abs().max() < 1e-4


def test_a_batch_of_matrices_is_orthogonalised_one_by_one():
    torch.manual_seed(2)
    several = torch.randn(3, 8, 20)
    alone = torch.stack([orthogonalise(matrix[None])[0] for matrix in several])
    torch.testing.assert_close(orthogonalise(several), alone, atol=1e-6, rtol=1e-5)


def test_step_rescales_a_filter_and_moves_it_along_the_orthogonal_direction():
    torch.manual_seed(3)
    filters = [nn.Parameter(torch.randn(8, 4, 3, 3)), nn.Parameter(torch.randn(6, 8, 3, 3))]
    before = [item.detach().clone() for item in filters]
    for item in filters:
        item.grad = torch.randn_like(item)
    Muon(filters, momentum=0.6, compiled=False).step(torch.tensor(0.25))
    for item, old in zip(filters, before, strict=True):
        rows = len(old)
        left, _, right = torch.linalg.svd(item.grad.view(1, rows, -1), full_matrices=False)
        rescaled = old * rows**0.5 / old.norm()
        moved = (rescaled - item.detach()).view(1, rows, -1) / 0.25
        values = torch.diagonal(left.mT @ moved @ right.mT, dim1=1, dim2=2)
        torch.testing.assert_close(
            left @ torch.diag_embed(values) @ right, moved, atol=1e-4, rtol=0
        )
        assert 0.3 < values.min() < values.max() < 1.4
