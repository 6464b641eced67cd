"""Precision and work of a training, untimed: `python -m worker.machine.precision`.

The work of a step is the FLOPs of its matmuls and convolutions, and the bytes they move.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
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
from reference_models import Reference, load_reference, synthetic_of
from reference_models.precision import configured
from worker.events import answer_orders

# Relative errors of a product of normal numbers: about 1e-7, 3e-4 and 2e-3.
LARGEST_FP32_ERROR = 1e-5
LARGEST_TF32_ERROR = 8e-4


def narrowest(names: Iterable[PrecisionName]) -> PrecisionName | None:
    """The narrowest of some types, which names the whole run.

    Source: MLPerf training_rules.adoc, appendix on utilisation: the lowest precision touched
    is the label of the run.
    """
    return max(names, key=WIDE_TO_NARROW.index, default=None)


def precision_by_error(relative_error: float) -> PrecisionName:
    """Type that a float32 product was really computed in, by its error against float64."""
    if relative_error <= LARGEST_FP32_ERROR:
        return "fp32"
    return "tf32" if relative_error <= LARGEST_TF32_ERROR else "bf16"


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
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in self._counted:
            leaves = tree_leaves((args, kwargs, result))
            self.total += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))
        return result


def count_work(step: Callable[[], object], *, batch_size: int) -> ModelWork | None:
    """The FLOPs and bytes of one step. None where no matmul or convolution is seen in it.

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
    """Formulas of operations that torch's own table lacks: fused recurrent layers, where every item
    of a sequence goes once through each weight matrix, and fused attention on a processor.
    """

    def of_matrices(items: Any, matrices: Any) -> int:
        shapes = [shape for shape in matrices if shape is not None and len(shape) == 2]
        return 2 * int(math.prod(items[:-1])) * int(sum(math.prod(shape) for shape in shapes))

    def processor(items: Any, to_gates: Any, between: Any, *_: Any, **__: Any) -> int:
        return of_matrices(items, (to_gates, between))

    def accelerator(items: Any, weights: Any, *_: Any, **__: Any) -> int:
        return of_matrices(items, weights)

    def twice(forward: Callable[..., int]) -> Callable[..., int]:
        return lambda *shapes, **named: 2 * forward(*shapes, **named)

    def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query, key, value))

    def attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_backward_flop_count(grad, query, key, value))

    return {
        _ATEN.mkldnn_rnn_layer: processor,
        _ATEN.mkldnn_rnn_layer_backward: twice(processor),
        _ATEN._cudnn_rnn: accelerator,
        _ATEN._cudnn_rnn_backward: twice(accelerator),
        _ATEN._scaled_dot_product_flash_attention_for_cpu: attention,
        _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
    }


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
TRANSPARENT = ("aten", "prim", "profiler")  # The rest computes where no mode can see it.
FUSED_ATTENTION = "attention"
FLAGS = (
    ("cuda.matmul", ("backends", "cuda", "matmul", "fp32_precision")),
    ("cuda.matmul.allow_tf32", ("backends", "cuda", "matmul", "allow_tf32")),
    ("cudnn.conv", ("backends", "cudnn", "conv", "fp32_precision")),
    ("cudnn.allow_tf32", ("backends", "cudnn", "allow_tf32")),
    ("mkldnn.matmul", ("backends", "mkldnn", "matmul", "fp32_precision")),
    ("mkldnn.conv", ("backends", "mkldnn", "conv", "fp32_precision")),
)
CANARY_SIDE = 512
CANARY_CHANNELS = 64


class AutocastWatch(TorchFunctionMode):  # type: ignore[misc]
    """While it is entered, notes whether autocast was on. A dispatch mode comes after autocast,
    where it is off again.
    """

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
            self._note((args, kwargs))
        return func(*args, **kwargs)

    def _note(self, operands: Any) -> None:
        types = {leaf.dtype for leaf in tree_leaves(operands) if isinstance(leaf, Tensor)}
        names = [NAMES[kind] for kind in types if kind in NAMES]
        lowest = narrowest(names)
        if lowest is not None:
            self.observed[lowest] += 1


def audit_step(step: Callable[[], object], device: str, *, scope: str) -> PrecisionAudit:
    """Watch one training step and return the narrowest type that it touched."""
    watch = PrecisionWatch(device)
    with watch.autocast, watch:
        step()
    return conclude(watch, device, scope=scope)


def conclude(watch: PrecisionWatch, device: str, *, scope: str) -> PrecisionAudit:
    """The lowest of the type observed, the flags' type and the canary's type."""
    names: set[PrecisionName] = set(watch.observed)
    errors: dict[str, float] = {}
    flags = read_flags()
    if "fp32" in names:
        names |= {precision_by_flags(flags, device)}
        errors = canary_errors(device)
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
    """torch's settings for float32 arithmetic. One that cannot be read is left out.

    torch raises where its old and its own newer settings were both used.
    """
    found = {"float32_matmul_precision": str(torch.get_float32_matmul_precision())}
    for name, path in FLAGS:
        with contextlib.suppress(RuntimeError, AttributeError):
            value: Any = torch
            for part in path:
                value = getattr(value, part)
            found[name] = str(value)
    return found


def precision_by_flags(flags: dict[str, str], device: str) -> PrecisionName:
    """Type that float32 may become on a device by torch's settings.

    On an accelerator without TF32 units the setting changes nothing, so it never lowers the
    precision there.
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

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=noise)

    left, right = normal(CANARY_SIDE, CANARY_SIDE), normal(CANARY_SIDE, CANARY_SIDE)
    x, weight = normal(4, CANARY_CHANNELS, 16, 16), normal(CANARY_CHANNELS, CANARY_CHANNELS, 3, 3)
    with torch.no_grad():
        return {
            "matmul": _relative_error(torch.matmul, left, right, device),
            "convolution": _relative_error(torch.conv2d, x, weight, device),
        }


def _relative_error(
    product: Callable[[Tensor, Tensor], Tensor], left: Tensor, right: Tensor, device: str
) -> float:
    exact = product(left.double(), right.double())
    found = product(left.to(device), right.to(device)).cpu().double()
    return float(((found - exact).norm() / exact.norm()).item())


SEED = 0
COMPILED_CODE = "compiled code"


def audit(told: dict[str, Any]) -> dict[str, Any]:
    reference = load_reference(told["reference"])
    config = configured(reference, told["hyperparameters"], told.get("precision"))
    device = told["device"]
    compiled = bool(getattr(config, "compile", False))
    plain = (
        replace(config, compile=0) if compiled else config
    )  # Compiled code hides its operations.
    synthetic = synthetic_of(reference, plain, device)
    if synthetic is None:
        found = audit_warm_up(reference, config, device=device, data_dir=Path(told["data_dir"]))
        return {"precision": asdict(found), "work": None}
    synthetic.train_step()  # The first step also plans kernels, which is no part of the work.
    precision = audit_step(synthetic.train_step, device, scope="one training step")
    if compiled:
        precision = replace(precision, opaque=sorted({*precision.opaque, COMPILED_CODE}))
    work = count_work(synthetic.train_step, batch_size=synthetic.batch_size)
    return {"precision": asdict(precision), "work": None if work is None else asdict(work)}


def audit_warm_up(
    reference: Reference, config: Any, *, device: str, data_dir: Path
) -> PrecisionAudit:
    """Watch a training up to where it first touches its data, and leave it there."""
    training = reference.train(config, seed=SEED, device=device, data_dir=data_dir)
    watch = PrecisionWatch(device)
    compiled = False
    with watch.autocast, watch:
        for item in training:
            compiled = compiled or item is Phase.COMPILE
            if item not in (Phase.INIT, Phase.COMPILE, Phase.WARMUP):
                break
    if compiled:
        watch.opaque.add(COMPILED_CODE)
    return conclude(watch, device, scope="the warm-up")


if __name__ == "__main__":
    torch.manual_seed(SEED)
    answer_orders(audit)
