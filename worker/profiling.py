"""Profile of a reference's training steps: `python -m worker.profiling FILE.toml ...`.

The parts are timed without a profiler; operators, trace and FLOP/s are of later, traced steps.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from finishline.devices import choose_device
from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import reference_of
from worker.bench import TERA
from worker.json_events import tell
from worker.local import hyperparameters
from worker.roofs import Roofs, find_device
from worker.step_parts import PARTS, WARM_UP_STEPS, watch_steps

TRACED_STEPS = 5
Points = list[list[float]]


def run_profile(orders: dict[str, Any], *, steps: int, out: Path) -> dict[str, Any]:
    """Time the steps, then trace some, then measure the roof that they are compared with."""
    tell("doing", doing="steps")
    watch = watch_steps(orders, steps=steps)
    step_seconds = fmean(watch.step_seconds[WARM_UP_STEPS:])
    timed = watch.parts_seconds[WARM_UP_STEPS:]
    parts: dict[str, float | None] = {part: fmean(one[part] for one in timed) for part in PARTS}
    idle = max(0.0, step_seconds - sum(value or 0.0 for value in parts.values()))
    parts |= {"communication": None, "idle": idle}
    tell("doing", doing="trace")
    traced = min(steps, TRACED_STEPS)
    operators, rates = trace_steps(orders, steps=traced, out=out)
    peak = peak_flops_per_second(orders["device"])
    absent = {"parts_seconds.communication": "one process exchanges nothing"}
    if not rates:
        absent["cdf"] = "torch's profiler counts no FLOPs in this training's operators"
    elif peak is None:
        absent["cdf.of_peak"] = "the roof was not measured"
    return {
        "steps": steps,
        "step_seconds": step_seconds,
        "parts_seconds": parts,
        "traced_steps": traced + WARM_UP_STEPS,
        "operators": operators,
        "cdf": {
            "flops_per_second": cumulative(rates) if rates else None,
            "of_peak": cumulative([rate / peak for rate in rates]) if rates and peak else None,
        },
        "peak_flops_per_second": peak,
        "bottleneck": max(parts, key=lambda part: parts[part] or 0.0),
        "absent": absent,
    }


def trace_steps(
    orders: dict[str, Any], *, steps: int, out: Path
) -> tuple[list[dict[str, Any]], list[float]]:
    """The operators of traced steps, longest first, and the FLOP/s of each call with FLOPs.

    Writes the Chrome trace.
    """
    cuda = orders["device"].startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities, with_flops=True) as found:
        watch_steps(orders, steps=steps, traced=True)
    found.export_chrome_trace(str(out / "trace.json"))

    def seconds(event: Any) -> float:
        return float(event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e6

    operators = [
        {"name": event.key, "calls": int(event.count), "seconds": seconds(event)}
        for event in found.key_averages()
        if event.key not in PARTS
    ]
    rates = [
        event.flops * 1e6 / total
        for event in found.events()
        if event.flops and (total := event.device_time_total if cuda else event.cpu_time_total) > 0
    ]
    return sorted(operators, key=lambda one: -float(str(one["seconds"]))), rates


def peak_flops_per_second(device: str) -> float | None:
    """The better roof of fp32 matmul and convolution, in this process and its threads."""
    figures = Roofs(find_device(device)).figures(only=("gemm_fp32", "convolution_fp32"))
    values = [figure.value for figure in figures.values() if figure.value is not None]
    return max(values) * TERA if values else None


def cumulative(values: Sequence[float]) -> Points:
    """Each value with the share of all that are no larger."""
    ordered = sorted(values)
    return [[value, (index + 1) / len(ordered)] for index, value in enumerate(ordered)]


def read_orders(benchmark_file: Path, device: str | None, data: Path) -> dict[str, Any]:
    """Orders for training a benchmark's reference with its defaults. Raises RuleError."""
    benchmark = load_benchmark(benchmark_file)
    return {
        "reference": reference_of(benchmark).reference,
        "hyperparameters": hyperparameters(benchmark, {}),
        "device": choose_device(device),
        "data_dir": str(data),
    }


def main() -> int:
    """Profile, tell, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m worker.profiling")
    parser.add_argument("benchmark", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device")
    parser.add_argument("--data", type=Path, default=Path("var/data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    try:
        orders = read_orders(given.benchmark, given.device, given.data)
        result = run_profile(orders, steps=given.steps, out=given.out)
    except (RuleError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    tell("result", result=result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
