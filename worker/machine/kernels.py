"""Seconds of single kernels, in its own process: `python -m worker.machine.kernels`."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from finishline.rules.errors import RuleError
from reference_models.distributed import check_device
from worker.events import answer_or_reason, first_line
from worker.machine.clock import time_calls
from worker.machine.kernel_list import Kernel

LAUNCHES = 200
Call = Callable[[Any], object]
Forward = Callable[[], Tensor]


@dataclass(frozen=True)
class Arithmetic:
    """One kind of floating-point arithmetic, on NVIDIA's cards from a compute `capability` on."""

    name: str
    dtype: torch.dtype
    tf32: bool = False
    capability: tuple[int, int] = (0, 0)

    @contextlib.contextmanager
    def switched_on(self) -> Iterator[None]:
        """Make float32 mean exactly this arithmetic within the block."""
        matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, convolution.allow_tf32
        matmul.allow_tf32 = convolution.allow_tf32 = self.tf32
        try:
            yield
        finally:
            matmul.allow_tf32, convolution.allow_tf32 = before


FP32 = Arithmetic("fp32", torch.float32)
TF32 = Arithmetic("tf32", torch.float32, tf32=True, capability=(8, 0))
BF16 = Arithmetic("bf16", torch.bfloat16, capability=(8, 0))
FP16 = Arithmetic("fp16", torch.float16)
FP8 = Arithmetic("fp8", torch.float8_e4m3fn, capability=(8, 9))
ARITHMETIC = {each.name: each for each in (FP32, TF32, BF16, FP16, FP8)}


def types_of(device: str) -> list[Arithmetic]:
    """List the types for a device's peak. AMD's keep float32 instead of TF32."""
    if not device.startswith("cuda"):
        return [FP32, BF16]
    capability = torch.cuda.get_device_capability(device)
    known = [each for each in ARITHMETIC.values() if capability >= each.capability]
    return [each for each in known if each is not TF32 or torch.version.hip is None]


def make_call(
    kernel: Kernel, device: str, *, layout: torch.memory_format = torch.contiguous_format
) -> tuple[Call, Callable[[], object]]:
    """Return a kernel on random numbers except an all-reduce, and its untimed preparation."""
    shape = kernel.shape
    if kernel.kind == "copy":
        source = torch.ones(shape["bytes"] // 4, device=device)
        target = torch.empty_like(source)
        return lambda _: target.copy_(source), lambda: None
    if kernel.kind == "launch":
        number = torch.zeros(1, device=device)

        def launch(_: object) -> None:
            for _ in range(LAUNCHES):
                number.add_(1)

        return launch, lambda: None
    forward, operands = _forward(kernel, device, layout)
    if kernel.direction == "forward":
        return lambda _: _without_gradients(forward), lambda: None
    for operand in operands:
        operand.requires_grad_(True)
    gradient = torch.ones_like(_without_gradients(forward))
    return lambda result: torch.autograd.grad(result, operands, gradient), forward


def _without_gradients(forward: Forward) -> Tensor:
    with torch.no_grad():
        return forward()


def _forward(
    kernel: Kernel, device: str, layout: torch.memory_format
) -> tuple[Forward, list[Tensor]]:
    """Return the forward pass of a kernel, and the operands that get gradients."""
    shape, dtype = kernel.shape, ARITHMETIC[kernel.precision].dtype

    def drawn(*sizes: str) -> Tensor:
        return torch.randn([shape[size] for size in sizes], device=device).to(dtype)

    if kernel.kind == "gemm":
        left, right = drawn("m", "k"), drawn("k", "n")
        if kernel.precision == FP8.name:
            return _fp8_product(left, right), []
        return lambda: left @ right, [left, right]
    if kernel.kind == "convolution":
        x = drawn("n", "c", "h", "w").to(memory_format=layout)
        filters = drawn("k", "c", "r", "s").to(memory_format=layout)
        padding, stride = shape["padding"], shape["stride"]
        return lambda: torch.conv2d(x, filters, stride=stride, padding=padding), [x, filters]
    if kernel.kind == "attention":
        lengths = ("query", "key", "key")
        operands = [drawn("batch", "heads", length, "head_dim") for length in lengths]
        attend = nn.functional.scaled_dot_product_attention
        return lambda: attend(*operands, is_causal=bool(shape["causal"])), operands
    layer = {"lstm": nn.LSTM, "gru": nn.GRU}[kernel.kind](shape["hidden"], shape["hidden"])
    layer.to(device, dtype)
    x = drawn("steps", "batch", "hidden")
    return lambda: layer(x)[0], [x, *layer.parameters()]


def _fp8_product(left: Tensor, right: Tensor) -> Forward:
    """Run a matmul of two matrices in float8, with a scale of one. The result is in bfloat16."""
    one = torch.ones((), device=left.device)
    by_columns = right.t().contiguous().t()  # As the kernels want the second one.
    return lambda: torch._scaled_mm(
        left, by_columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16
    )


def check_kernels(kernels: Sequence[Kernel], device: str) -> None:
    """Raise RuleError before the timing for a kernel that the device or torch lacks."""
    check_device(device)
    if not device.startswith("cuda"):
        return  # Precisions of a processor were checked before torch was loaded.
    known = {each.name for each in types_of(device)}
    for kernel in kernels:
        if kernel.precision not in known:
            raise RuleError(
                f"{device} has no arithmetic in {kernel.precision}",
                expected=f"precisions of {', '.join(sorted(known))}",
            )
        if kernel.precision == FP8.name and (kernel.kind, kernel.direction) != ("gemm", "forward"):
            raise RuleError(
                f"torch has no {kernel.kind} {kernel.direction} in fp8; "
                "put gemm forward in fp8 into a list of its own"
            )


def time_kernel(
    kernel: Kernel,
    device: str,
    seconds: float,
    *,
    layout: torch.memory_format = torch.contiguous_format,
) -> list[float]:
    """Return seconds of each call. Raises RuleError with the kernel's name."""
    try:
        with ARITHMETIC[kernel.precision].switched_on():
            call, prepare = make_call(kernel, device, layout=layout)
            taken = time_calls(call, seconds=seconds, device=device, prepare=prepare)
    except (RuntimeError, MemoryError, NotImplementedError, TypeError, AttributeError) as error:
        raise RuleError(f"{kernel.words} was not measured: {first_line(error)}") from error
    return [each / LAUNCHES for each in taken] if kernel.kind == "launch" else taken


def answer(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return seconds of each call of each kernel."""
    torch.backends.cudnn.benchmark = True
    device, kernels = told["device"], TypeAdapter(list[Kernel]).validate_python(told["kernels"])
    check_kernels(kernels, device)
    return {"seconds": [time_kernel(each, device, told["seconds"]) for each in kernels]}


if __name__ == "__main__":
    answer_or_reason(answer)
