"""Shared by trainings: a step, schedules of the learning rate, averaged weights."""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from reference_models import TrainingDivergedError
from reference_models.arithmetic import Arithmetic
from reference_models.distributed import World


def train_step(
    model: nn.Module,
    optimiser: torch.optim.SGD,
    x: Tensor,
    y: Tensor,
    arithmetic: Arithmetic,
    *,
    rate: float,
    world: World | None = None,
) -> Tensor:
    """Take one step of a classifier at the given learning rate. The loss stays on the device."""
    set_rate(optimiser, rate)
    with arithmetic.forward():
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    optimiser.zero_grad()
    arithmetic.backward(loss)
    if world is not None:
        world.average_gradients(model.parameters())
    arithmetic.step(optimiser)
    return loss.detach()


def make_sgd(model: nn.Module, config: Any) -> torch.optim.SGD:
    """Make SGD with Nesterov momentum from the fields of a configuration. Steps set the rate."""
    return torch.optim.SGD(
        model.parameters(),
        lr=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.momentum > 0,
    )


def linear_rate(step: int, steps: int, *, peak_share: float, peak: float) -> float:
    """Up linearly to the peak over a share of all steps, then linearly to zero."""
    peak_step = peak_share * steps
    if step < peak_step:
        return peak * (step + 1) / (peak_step + 1)
    return peak * (steps - step) / (steps - peak_step)


def cosine_rate(
    step: int, steps: int, *, peak_share: float, peak: float, final_share: float = 0.0
) -> float:
    """Up linearly to the peak over a share of all steps, then a cosine to a share of the peak."""
    peak_step = peak_share * steps
    if step < peak_step:
        return peak * (step + 1) / (peak_step + 1)
    fall = (1 + math.cos(math.pi * (step - peak_step) / (steps - peak_step))) / 2
    return peak * (final_share + (1 - final_share) * fall)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group of parameters."""
    for group in optimiser.param_groups:
        group["lr"] = rate


def average(averaged: nn.Module, model: nn.Module, *, decay: float) -> None:
    """Move averaged weights and statistics to the model's: decay * averaged + rest * model."""
    with torch.no_grad():
        for mean, value in zip(_averageable(averaged), _averageable(model), strict=True):
            mean.lerp_(value, 1 - decay)


def _averageable(model: nn.Module) -> Iterator[Tensor]:
    values = chain(model.parameters(), model.buffers())
    return (value for value in values if value.is_floating_point())


def check_loss(loss: float, *, epoch: int) -> None:
    """Raise TrainingDivergedError for an infinite or NaN loss."""
    if not math.isfinite(loss):
        raise TrainingDivergedError(f"the loss is {loss} at the end of epoch {epoch}")
