"""Precision and work of a training, untimed: `python -m worker.machine.precision`.

The work of a step is the FLOPs of its matmuls and convolutions, and the bytes they move.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import (
    FlopCounterMode,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from finishline.rules.measurements import ModelWork, PrecisionAudit, PrecisionName
from finishline.rules.run import Phase
from finishline.rules.verification.utilisation import WIDE_TO_NARROW
from reference_models import load_reference, synthetic_of
from reference_models.precision import configured
from worker.events import answer_orders

# Relative errors of a product of normal numbers: about 1e-7, 3e-4 and 2e-3.
LARGEST_FP32_ERROR = 1e-5
LARGEST_TF32_ERROR = 8e-4


def narrowest(names: Iterable[PrecisionName]) -> PrecisionName | None:
    """Return the narrowest of some types, which names the whole run.

    Source: MLPerf training_rules.adoc, appendix on utilisation: the lowest precision touched is the
    label of the run.
    """
    return max(names, key=WIDE_TO_NARROW.index, default=None)


def precision_by_error(relative_error: float) -> PrecisionName:
    """Find the type that a float32 product was computed in, by its error against float64."""
    if relative_error <= LARGEST_FP32_ERROR:
        return "fp32"
    return "tf32" if relative_error <= LARGEST_TF32_ERROR else "bf16"


def _matrices(items: Any, shapes: Any) -> int:
    """FLOPs where every item of a sequence goes once through each weight matrix."""
    weights = sum(math.prod(shape) for shape in shapes if shape is not None and len(shape) == 2)
    return 2 * int(math.prod(items[:-1])) * int(weights)


def _recurrent(items: Any, to_gates: Any, between: Any, *_: Any, **__: Any) -> int:
    return _matrices(items, (to_gates, between))


def _cudnn(items: Any, weights: Any, *_: Any, **__: Any) -> int:
    return _matrices(items, weights)


_ATEN = torch.ops.aten
# torch's own table lacks fused recurrent layers and attention on a processor.
FORMULAS: dict[Any, Callable[..., int]] = {
    _ATEN.mkldnn_rnn_layer: _recurrent,
    _ATEN.mkldnn_rnn_layer_backward: lambda *shapes, **named: 2 * _recurrent(*shapes, **named),
    _ATEN._cudnn_rnn: _cudnn,
    _ATEN._cudnn_rnn_backward: lambda *shapes, **named: 2 * _cudnn(*shapes, **named),
    _ATEN._scaled_dot_product_flash_attention_for_cpu: lambda query, key, value, *_, **__: (
        sdpa_flop_count(query, key, value)
    ),
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda gradient, query, key, value, *_, **__: sdpa_backward_flop_count(
            gradient, query, key, value
        )
    ),
}


class MovedBytes(TorchDispatchMode):  # type: ignore[misc]
    """Add up, while entered, the bytes of operands and results of every operation with FLOPs."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in flop_registry or func.overloadpacket in FORMULAS:
            leaves = tree_leaves((args, kwargs, result))
            self.total += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))
        return result


def count_work(step: Callable[[], object], *, batch_size: int) -> ModelWork | None:
    """Count FLOPs and bytes of one uncompiled step, if it has a matmul or a convolution."""
    counter, moved = FlopCounterMode(display=False, custom_mapping=FORMULAS), MovedBytes()
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


NAMES: dict[torch.dtype, PrecisionName] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
    torch.int8: "int8",
    torch.uint8: "int8",
}
PRODUCTS = frozenset({
    "mm", "bmm", "addmm", "addbmm", "baddbmm", "mv", "addmv", "dot", "vdot", "matmul", "linear",
    "addr", "einsum", "convolution", "_convolution", "convolution_backward", "cudnn_convolution",
    "mkldnn_convolution", "miopen_convolution", "_scaled_mm", "_scaled_grouped_mm", "_grouped_mm",
    "_int_mm", "mkldnn_linear", "_addmm_activation", "lstm", "gru", "_cudnn_rnn",
    "mkldnn_rnn_layer", "_thnn_fused_lstm_cell", "_weight_int8pack_mm", "_weight_int4pack_mm",
})  # fmt: skip
TRANSPARENT = ("aten", "prim", "profiler")  # The rest computes where a mode is blind.
FUSED_ATTENTION = "attention"
FLAGS = {
    "cuda.matmul": "backends.cuda.matmul.fp32_precision",
    "cuda.matmul.allow_tf32": "backends.cuda.matmul.allow_tf32",
    "cudnn.conv": "backends.cudnn.conv.fp32_precision",
    "cudnn.allow_tf32": "backends.cudnn.allow_tf32",
    "mkldnn.matmul": "backends.mkldnn.matmul.fp32_precision",
    "mkldnn.conv": "backends.mkldnn.conv.fp32_precision",
}
CANARIES: tuple[tuple[Any, ...], ...] = (
    ("matmul", "matmul", (512, 512), (512, 512)),
    ("convolution", "conv2d", (4, 64, 16, 16), (64, 64, 3, 3)),
)


class AutocastWatch(TorchFunctionMode):  # type: ignore[misc]
    """Notes whether autocast was on. A dispatch mode runs after autocast, when it is off again."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.seen = False
        self._device_type = device_type

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen = self.seen or torch.is_autocast_enabled(self._device_type)
        return func(*args, **(kwargs or {}))


class PrecisionWatch(TorchDispatchMode):  # type: ignore[misc]
    """While it is entered, notes the floating types of the operands of every product."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.observed: Counter[PrecisionName] = Counter()
        self.opaque: set[str] = set()
        self.autocast = AutocastWatch(torch.device(device).type)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        namespace, _, name = func._schema.name.partition("::")
        is_attention = FUSED_ATTENTION in name
        if namespace not in TRANSPARENT:
            self.opaque.add(f"{namespace}::{name}")
        elif is_attention:
            self.opaque.add(f"inside of {name}")
        if name in PRODUCTS or is_attention:
            leaves = tree_leaves((args, kwargs))
            types = {leaf.dtype for leaf in leaves if isinstance(leaf, Tensor)}
            lowest = narrowest([NAMES[kind] for kind in types if kind in NAMES])
            if lowest is not None:
                self.observed[lowest] += 1
        return func(*args, **kwargs)


def audit_step(step: Callable[[], object], device: str, *, scope: str) -> PrecisionAudit:
    """Watch a step. Return the narrowest type of three.

    They are the types it touched, the types that torch's flags allow for float32, and the type by
    the error of a float32 product.
    """
    watch = PrecisionWatch(device)
    with watch.autocast, watch:
        step()
    names: set[PrecisionName] = set(watch.observed)
    errors: dict[str, float] = {}
    flags = read_flags()
    if "fp32" in names:
        errors = canary_errors(device)
        names.add(precision_by_flags(flags, device))
        names |= {precision_by_error(error) for error in errors.values()}
    return PrecisionAudit(
        lowest=narrowest(names),
        observed={str(name): count for name, count in watch.observed.items()},
        autocast=watch.autocast.seen,
        flags=flags,
        canary_errors=errors,
        opaque=sorted(watch.opaque),
        scope=scope,
    )


def read_flags() -> dict[str, str]:
    """Read torch's settings for float32 arithmetic. Mixed old and new settings make torch raise."""
    found = {"float32_matmul_precision": str(torch.get_float32_matmul_precision())}
    for name, path in FLAGS.items():
        with contextlib.suppress(RuntimeError, AttributeError):
            found[name] = str(attrgetter(path)(torch))
    return found


def precision_by_flags(flags: dict[str, str], device: str) -> PrecisionName:
    """Return the type that float32 may become on a device by torch's settings.

    On an accelerator without TF32 units the setting has no effect, so the precision stays.
    """
    if device.startswith("cuda"):
        allowed = any(
            flags.get(name) in ("tf32", "True")
            for name in ("cuda.matmul", "cuda.matmul.allow_tf32", "cudnn.conv", "cudnn.allow_tf32")
        )
        return "tf32" if allowed and torch.cuda.get_device_capability(device) >= (8, 0) else "fp32"
    kinds = {flags.get("mkldnn.matmul"), flags.get("mkldnn.conv")}
    if "bf16" in kinds or flags["float32_matmul_precision"] == "medium":
        return "bf16"
    return "tf32" if "tf32" in kinds else "fp32"


def canary_errors(device: str) -> dict[str, float]:
    """Relative errors of a float32 matmul and convolution on the device against float64."""
    noise = torch.Generator().manual_seed(0)
    errors = {}
    for name, product, *shapes in CANARIES:
        left, right = (torch.randn(*shape, generator=noise) for shape in shapes)
        with torch.no_grad():
            exact = getattr(torch, product)(left.double(), right.double())
            found = getattr(torch, product)(left.to(device), right.to(device)).cpu().double()
        errors[name] = float(((found - exact).norm() / exact.norm()).item())
    return errors


SEED = 0
COMPILED_CODE = "compiled code"


def audit(told: dict[str, Any]) -> dict[str, Any]:
    """Return precision and work of a training step, or only the precision of the warm-up."""
    reference = load_reference(told["reference"])
    config = configured(reference, told["hyperparameters"], told.get("precision"))
    device = told["device"]
    compiled = bool(getattr(config, "compile", False))
    plain = replace(config, compile=0) if compiled else config  # Compiled code hides its work.
    synthetic = synthetic_of(reference, plain, device)
    work = None
    if synthetic is not None:
        synthetic.train_step()  # The first step also plans kernels, beyond the work.
        precision = audit_step(synthetic.train_step, device, scope="one training step")
        work = count_work(synthetic.train_step, batch_size=synthetic.batch_size)
    else:
        data_dir, phases = Path(told["data_dir"]), []

        def warm_up() -> None:
            """Train up to where the data are first touched, and leave it there."""
            for item in reference.train(config, seed=SEED, device=device, data_dir=data_dir):
                phases.append(item)
                if item not in (Phase.INIT, Phase.COMPILE, Phase.WARMUP):
                    break

        precision = audit_step(warm_up, device, scope="the warm-up")
        compiled = Phase.COMPILE in phases
    if compiled:
        precision = replace(precision, opaque=sorted({*precision.opaque, COMPILED_CODE}))
    return {"precision": asdict(precision), "work": None if work is None else asdict(work)}


if __name__ == "__main__":
    torch.manual_seed(SEED)
    answer_orders(audit)
