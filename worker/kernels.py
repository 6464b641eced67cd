"""Kernels made of their shapes, and the seconds of their calls."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from worker.kernel_rules import Kernel, Shape
from worker.latency import synchronise
from worker.roofs import LAUNCHES, Arithmetic, fp8_product

WARM_UP_CALLS = 5


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
        return _launches(device)
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


def _launches(device: str) -> Calls:
    number = torch.zeros(1, device=device)

    def launch(_: object) -> None:
        for _ in range(LAUNCHES):
            number.add_(1)

    return Calls(launch, repeats=LAUNCHES)


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

    started = time.perf_counter()
    for _ in range(WARM_UP_CALLS):
        timed()
        if time.perf_counter() - started > seconds:
            break
    taken: list[float] = []
    started = time.perf_counter()
    while not taken or time.perf_counter() - started < seconds:
        taken.append(timed())
    return taken
