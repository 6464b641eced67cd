"""Seconds of single kernels, in a process of its own: `python -m worker.bench.kernels`."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from worker.bench.kernel_list import Kernel, Shape
from worker.bench.model_speed import ARITHMETIC, repeat, warm_up
from worker.bench.runs import BenchError
from worker.events import answer_orders
from worker.machine.latency import first_line, synchronise
from worker.machine.peak import (
    FP8,
    LAUNCHES,
    Arithmetic,
    Device,
    find_device,
    fp8_product,
    types_of,
)


@dataclass(frozen=True)
class Calls:
    """A kernel as it is timed: `call` gets the result of `prepare`, which is not timed."""

    call: Callable[[object], object]
    prepare: Callable[[], object] = lambda: None
    repeats: int = 1


def make_calls(kernel: Kernel, arithmetic: Arithmetic, device: str) -> Calls:
    """The calls of a kernel other than an all-reduce, on random numbers."""
    if kernel.kind == "copy":
        source = torch.ones(kernel.shape["bytes"] // 4, device=device)
        target = torch.empty_like(source)
        return Calls(lambda _: target.copy_(source))
    if kernel.kind == "launch":
        number = torch.zeros(1, device=device)

        def launch(_: object) -> None:
            for _ in range(LAUNCHES):
                number.add_(1)

        return Calls(launch, repeats=LAUNCHES)
    if arithmetic.name == "fp8":
        left, right = _operands(kernel.shape, torch.float32, device)
        product = fp8_product(left, right.t())
        return Calls(lambda _: product())
    forward, operands = _MAKERS[kernel.kind](kernel.shape, arithmetic.dtype, device)
    if kernel.direction == "forward":
        return Calls(lambda _: _without_gradients(forward))
    for operand in operands:
        operand.requires_grad_(True)
    gradient = torch.ones_like(_without_gradients(forward))
    return Calls(lambda result: torch.autograd.grad(result, operands, gradient), forward)


def _without_gradients(forward: Callable[[], Tensor]) -> Tensor:
    with torch.no_grad():
        return forward()


Made = tuple[Callable[[], Tensor], list[Tensor]]


def _operands(shape: Shape, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    m, n, k = (shape[name] for name in "mnk")
    left = torch.randn(m, k, device=device).to(dtype)
    return left, torch.randn(k, n, device=device).to(dtype)


def _gemm(shape: Shape, dtype: torch.dtype, device: str) -> Made:
    left, right = _operands(shape, dtype, device)
    return lambda: left @ right, [left, right]


def _convolution(shape: Shape, dtype: torch.dtype, device: str) -> Made:
    n, c, h, w, k, r, s = (shape[name] for name in "nchwkrs")
    x = torch.randn(n, c, h, w, device=device).to(dtype)
    filters = torch.randn(k, c, r, s, device=device).to(dtype)
    padding, stride = shape["padding"], shape["stride"]
    return lambda: torch.conv2d(x, filters, stride=stride, padding=padding), [x, filters]


def _recurrent(layer: type[nn.RNNBase]) -> Callable[[Shape, torch.dtype, str], Made]:
    def make(shape: Shape, dtype: torch.dtype, device: str) -> Made:
        hidden, batch, steps = shape["hidden"], shape["batch"], shape["steps"]
        module = layer(hidden, hidden).to(device, dtype)
        x = torch.randn(steps, batch, hidden, device=device).to(dtype)
        return lambda: module(x)[0], [x, *module.parameters()]

    return make


def _attention(shape: Shape, dtype: torch.dtype, device: str) -> Made:
    def heads_of(length: int) -> Tensor:
        size = shape["batch"], shape["heads"], length, shape["head_dim"]
        return torch.randn(size, device=device).to(dtype)

    operands = [heads_of(shape[name]) for name in ("query", "key", "key")]
    causal = bool(shape["causal"])
    attend = nn.functional.scaled_dot_product_attention
    return lambda: attend(*operands, is_causal=causal), operands


_MAKERS: dict[str, Callable[[Shape, torch.dtype, str], Made]] = {
    "gemm": _gemm,
    "convolution": _convolution,
    "lstm": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
    "attention": _attention,
}


def time_calls(calls: Calls, *, seconds: float, device: str) -> list[float]:
    """Seconds of each call until the time is up, at least one, after a warm-up."""

    def timed() -> float:
        prepared = calls.prepare()
        synchronise(device)
        begun = time.perf_counter()
        calls.call(prepared)
        synchronise(device)
        return (time.perf_counter() - begun) / calls.repeats

    warm_up(timed, seconds=seconds)
    return repeat(timed, seconds=seconds)


def check_device(kernels: Sequence[Kernel], device: Device) -> None:
    """Raise BenchError for a kernel that the device or torch lacks, before any is timed."""
    if device.kind == "cpu":
        return  # Precisions of a processor were checked before torch was loaded.
    known = {each.name for each in types_of(device.kind, device.capability)}
    for kernel in kernels:
        if kernel.precision not in known:
            raise BenchError(
                f"{device.where} has no arithmetic in {kernel.precision}; "
                f"expected precisions of {', '.join(sorted(known))}"
            )
        if kernel.precision == FP8.name and (kernel.kind, kernel.direction) != ("gemm", "forward"):
            raise BenchError(
                f"torch has no {kernel.kind} {kernel.direction} in fp8; "
                "put gemm forward in fp8 into a list of its own"
            )
        if kernel.kind == "all_reduce" and kernel.shape["processes"] > device.count:
            raise BenchError(
                f"{kernel.words} needs as many accelerators, and there are {device.count}"
            )


def answer(told: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of each call of each kernel, or the sentence why one cannot be run."""
    torch.backends.cudnn.benchmark = True
    kernels = TypeAdapter(tuple[Kernel, ...]).validate_python(told["kernels"])
    try:
        check_device(kernels, find_device(told["device"]))
        return {"seconds": [time_kernel(each, told["device"], told["seconds"]) for each in kernels]}
    except (BenchError, RuntimeError) as error:
        return {"missing": first_line(error)}


def time_kernel(kernel: Kernel, device: str, seconds: float) -> list[float]:
    """Seconds of each call. Raises BenchError with the kernel's name."""
    arithmetic = ARITHMETIC.get(kernel.precision, FP8)
    try:
        with arithmetic.switched_on():
            calls = make_calls(kernel, arithmetic, device)
            return time_calls(calls, seconds=seconds, device=device)
    except (RuntimeError, MemoryError, NotImplementedError, TypeError) as error:
        raise BenchError(f"{kernel.words} was not measured: {first_line(error)}") from error


if __name__ == "__main__":
    answer_orders(answer)
