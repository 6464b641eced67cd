"""Seconds and rates of single kernels: `python -m worker.kernel_bench FILE.toml`.

Writes events as worker.bench does. An all-reduce is measured in processes of its own.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from finishline.rules.scoring.latency import FEWEST_SAMPLES, distribution
from worker.bench import BenchError, tell_result
from worker.group_runs import run_group
from worker.json_events import tell
from worker.kernel_rules import Kernel, read_kernels
from worker.kernels import make_calls, time_calls
from worker.latency import first_line
from worker.model_speed import ARITHMETIC
from worker.probe import describe_surroundings, probe
from worker.roofs import FP8, Device, find_device, types_of

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, tell, return the exit code."""
    return tell_result(lambda: run_kernels(read_arguments(arguments)))


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
    system = probe(threads=asked.threads, device=asked.device)
    return {
        "device": asked.device,
        "system": asdict(system),
        "host": describe_surroundings(asked.device),
        "flops_convention": CONVENTION,
        "absent": why_figures_are_absent(rows),
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
            found = run_group("worker.group_all_reduce", orders, kernel.shape["processes"])
            return list(found["seconds"])
        arithmetic = ARITHMETIC.get(kernel.precision, FP8)
        with arithmetic.switched_on():
            calls = make_calls(kernel, arithmetic, asked.device)
            return time_calls(calls, seconds=asked.seconds, device=asked.device)
    except (BenchError, RuntimeError, MemoryError, NotImplementedError, TypeError) as error:
        raise BenchError(f"{kernel.words} was not measured: {first_line(error)}") from error


def figures_of(kernel: Kernel, taken: Sequence[float]) -> dict[str, Any]:
    """The figures of one kernel from the seconds of its calls."""
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


def why_figures_are_absent(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The reason for each figure that a kernel lacks, by name."""
    absent = {}
    for name, why in (
        ("flops", "a copy, an all-reduce and a launch multiply nothing"),
        ("flops_per_second", "a copy, an all-reduce and a launch multiply nothing"),
        ("bytes_per_second", "bytes are counted of copies and all-reduces alone"),
    ):
        if any(row[name] is None for row in rows):
            absent[name] = why
    for percent, least in FEWEST_SAMPLES.items():
        if any(row["seconds"][f"p{percent}"] is None for row in rows):
            absent[f"seconds.p{percent}"] = f"fewer than {least} calls were timed"
    return absent


if __name__ == "__main__":
    sys.exit(main())
