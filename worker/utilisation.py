"""The work of a training step, counted: FLOPs of its matmuls and convolutions, bytes they move."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import (
    FlopCounterMode,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from finishline.rules.measurements import ModelWork

_ATEN = torch.ops.aten


class MovedBytes(TorchDispatchMode):  # type: ignore[misc]
    """Add up, while entered, the bytes of operands and results of every operation with FLOPs."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self._counted = set(flop_registry) | set(_beside_torchs_own())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count one operation and let it happen."""
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in self._counted:
            leaves = tree_leaves((args, kwargs, result))
            self.total += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))
        return result


def count_work(step: Callable[[], object], *, batch_size: int) -> ModelWork | None:
    """The FLOPs and bytes of one step; None where no matmul or convolution is seen in it.

    Compiled code hides its operations: count a step that is not compiled.
    """
    counter = FlopCounterMode(display=False, custom_mapping=_beside_torchs_own())
    moved = MovedBytes()
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # It fuses a whole layer into one operation.
    try:
        with counter, moved:
            step()
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    flops = counter.get_total_flops()
    if not flops:
        return None
    return ModelWork(batch_size, step_flops=float(flops), step_bytes=float(moved.total))


def _beside_torchs_own() -> dict[Any, Callable[..., int]]:
    """Formulas of operations that torch's own table lacks."""
    return _attention_on_processors() | _recurrent_layers()


def _recurrent_layers() -> dict[Any, Callable[..., int]]:
    """Fused recurrent layers: every item of a sequence goes once through each weight matrix."""

    def of_matrices(items: Any, matrices: Any) -> int:
        shapes = [shape for shape in matrices if shape is not None and len(shape) == 2]
        return 2 * int(math.prod(items[:-1])) * int(sum(math.prod(shape) for shape in shapes))

    def processor(items: Any, to_gates: Any, between: Any, *_: Any, **__: Any) -> int:
        return of_matrices(items, (to_gates, between))

    def accelerator(items: Any, weights: Any, *_: Any, **__: Any) -> int:
        return of_matrices(items, weights)

    def twice(forward: Callable[..., int]) -> Callable[..., int]:
        return lambda *shapes, **named: 2 * forward(*shapes, **named)

    return {
        _ATEN.mkldnn_rnn_layer: processor,
        _ATEN.mkldnn_rnn_layer_backward: twice(processor),
        _ATEN._cudnn_rnn: accelerator,
        _ATEN._cudnn_rnn_backward: twice(accelerator),
    }


def _attention_on_processors() -> dict[Any, Callable[..., int]]:
    """Fused attention on a processor, which torch's own table of formulas lacks."""

    def forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query, key, value))

    def backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_backward_flop_count(grad, query, key, value))

    return {
        _ATEN._scaled_dot_product_flash_attention_for_cpu: forward,
        _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }
