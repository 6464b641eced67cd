"""Arithmetic of a training step: float32, TF32, or mixed precision in 16 bits.

Weights, gradients, the optimiser and evaluations always stay in float32. Autocast shortens only the
operands of the step's products.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

NARROW = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Arithmetic:
    """One precision on one device: the forward pass under it, with a scaled loss if needed.

    Gradients in fp16 would vanish below 6e-8, so its loss is scaled up and its gradients down
    again. An infinite or NaN gradient skips the step and halves the scale. In fp32 a step is the
    plain one, bit for bit. On a GPU fp32 turns TF32 off, for this process.
    """

    def __init__(self, precision: str, device: str) -> None:
        self._kind = torch.device(device).type
        self._dtype = NARROW.get(precision)
        self._scaler = torch.amp.GradScaler(self._kind, enabled=precision == "fp16")
        if self._kind == "cuda":
            allowed = precision == "tf32"
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed

    def forward(self) -> AbstractContextManager[Any]:
        """Within it the products of a forward pass are in this precision."""
        if self._dtype is None:
            return nullcontext()
        context: AbstractContextManager[Any] = torch.autocast(self._kind, dtype=self._dtype)
        return context

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss, which `step` expects scaled."""
        self._scaler.scale(loss).backward()

    def unscale(self, optimiser: torch.optim.Optimizer) -> None:
        """Bring the gradients to their true size, before they are clipped."""
        self._scaler.unscale_(optimiser)

    def step(self, optimiser: torch.optim.Optimizer) -> None:
        """Update the weights, unless a scaled gradient left the range of fp16."""
        self._scaler.step(optimiser)
        self._scaler.update()
