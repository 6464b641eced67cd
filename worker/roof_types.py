"""The arithmetic that roofs are measured in, and where a device has it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

TF32_CAPABILITY = (8, 0)
BF16_CAPABILITY = (8, 0)
FP8_CAPABILITY = (8, 9)


@dataclass(frozen=True)
class Arithmetic:
    """One kind of floating-point arithmetic; `tf32` may shorten the operands of float32."""

    name: str
    dtype: torch.dtype
    tf32: bool = False
    convolves: bool = True

    @contextlib.contextmanager
    def switched_on(self) -> Iterator[None]:
        """Within it float32 means this arithmetic and no other."""
        matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
        before = matmul.allow_tf32, convolution.allow_tf32
        matmul.allow_tf32 = convolution.allow_tf32 = self.tf32
        try:
            yield
        finally:
            matmul.allow_tf32, convolution.allow_tf32 = before


FP32 = Arithmetic("fp32", torch.float32)
TF32 = Arithmetic("tf32", torch.float32, tf32=True)
BF16 = Arithmetic("bf16", torch.bfloat16)
FP16 = Arithmetic("fp16", torch.float16)
FP8 = Arithmetic("fp8", torch.float8_e4m3fn, convolves=False)


def types_of(kind: str, capability: tuple[int, int]) -> tuple[Arithmetic, ...]:
    """What a device can be measured in, by its kind and compute capability."""
    if kind == "cpu":
        return (FP32, BF16)
    types = [FP32]
    if capability >= TF32_CAPABILITY:
        types.append(TF32)
    if capability >= BF16_CAPABILITY:
        types.append(BF16)
    types.append(FP16)
    if capability >= FP8_CAPABILITY:
        types.append(FP8)
    return tuple(types)


def fp8_product(left: Tensor, right: Tensor) -> Callable[[], Tensor]:
    """A matmul of two matrices in float8, with a scale of one; the result is in bfloat16."""
    one = torch.ones((), device=left.device)
    a = left.to(FP8.dtype)
    b = right.to(FP8.dtype).t().contiguous().t()  # The kernels want the second one by columns.
    return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
