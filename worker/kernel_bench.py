"""Seconds and rates of single kernels: `python -m worker.kernel_bench FILE.toml`.

Writes events as worker.bench does. An all-reduce is measured in processes of its own.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from worker.bench import BenchError, absent_figures, describe_machine, run_group, tell_result
from worker.json_events import tell
from worker.kernel_rules import Kernel, Shape, read_kernels
from worker.latency import distribution, first_line, synchronise
from worker.model_speed import ARITHMETIC, repeat, warm_up
from worker.roofs import FP8, LAUNCHES, Arithmetic, Device, find_device, fp8_product, types_of


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


NO_PRODUCT = "a copy, an all-reduce and a launch multiply nothing"
REASONS = {
    "flops": NO_PRODUCT,
    "flops_per_second": NO_PRODUCT,
    "bytes_per_second": "bytes are counted of copies and all-reduces alone",
}
CONVENTION = (
    "one multiply-add is two FLOPs; matmuls and convolutions, with LSTM and GRU gates and attention"
    " (whole, causal or not), and nothing else; a backward pass is the gradients of both operands, "
    "two products for each forward"
)


@dataclass(frozen=True)
class KernelBench:
    """Options of the command line."""

    kernels: tuple[Kernel, ...]
    device: str
    threads: int
    seconds: float


def read_arguments(arguments: Sequence[str] | None = None) -> KernelBench:
    """The command line, with the list of kernels. Raises RuleError."""
    parser = argparse.ArgumentParser(prog="python -m worker.kernel_bench")
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args(arguments)
    kernels = read_kernels(given.file.read_bytes(), file=given.file.name)
    return KernelBench(kernels, given.device, given.threads, given.seconds)


def run_kernels(asked: KernelBench) -> dict[str, Any]:
    """Time every kernel in turn. Raises BenchError where one cannot be run."""
    torch.set_num_threads(asked.threads)
    torch.backends.cudnn.benchmark = True
    try:
        device = find_device(asked.device)
    except RuntimeError as error:
        raise BenchError(first_line(error)) from error
    check_device(asked.kernels, device)
    rows: list[dict[str, Any]] = []
    for kernel in asked.kernels:
        tell("doing", doing=kernel.words)
        rows.append(figures_of(kernel, time_kernel(kernel, asked)))
    return {
        **describe_machine(asked.device, threads=asked.threads),
        "flops_convention": CONVENTION,
        "absent": absent_figures(rows, REASONS, seconds="seconds", calls="calls"),
        "kernels": rows,
    }


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


def time_kernel(kernel: Kernel, asked: KernelBench) -> list[float]:
    """Seconds of each call. Raises BenchError with the kernel's name."""
    try:
        if kernel.kind == "all_reduce":
            where = "cuda" if asked.device.startswith("cuda") else asked.device
            orders = {
                "device": where,
                "bytes": kernel.shape["bytes"],
                "seconds": asked.seconds,
            }
            found = run_group(orders, kernel.shape["processes"])
            return list(found["seconds"])
        arithmetic = ARITHMETIC.get(kernel.precision, FP8)
        with arithmetic.switched_on():
            calls = make_calls(kernel, arithmetic, asked.device)
            return time_calls(calls, seconds=asked.seconds, device=asked.device)
    except (BenchError, RuntimeError, MemoryError, NotImplementedError, TypeError) as error:
        raise BenchError(f"{kernel.words} was not measured: {first_line(error)}") from error


def figures_of(kernel: Kernel, taken: Sequence[float]) -> dict[str, Any]:
    seconds = distribution(taken)
    median = float(seconds["p50"] or 0)
    flops, moved = kernel.flops, kernel.bytes_moved
    return {
        "kind": kernel.kind,
        "pass": kernel.direction,
        "precision": kernel.precision,
        "shape": dict(kernel.shape),
        "seconds": seconds,
        "flops": flops,
        "flops_per_second": None if flops is None else flops / median,
        "bytes_per_second": None if moved is None else moved / median,
    }


if __name__ == "__main__":
    sys.exit(tell_result(lambda: run_kernels(read_arguments())))
