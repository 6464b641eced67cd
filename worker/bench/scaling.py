"""Scaling of a reference's training over processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import check_settings, reference_of
from worker.bench.runs import BenchError, Say, run_group
from worker.local import hyperparameters


@dataclass(frozen=True)
class AllReduceFit:
    """T(bytes) = latency + bytes * 2 (p - 1) / p / bytes_per_second."""

    latency_seconds: float
    seconds_per_byte: float

    def seconds(self, size: float, processes: int) -> float:
        """Seconds of one all-reduce of so many bytes over so many processes."""
        return self.latency_seconds + size * 2 * (processes - 1) / processes * self.seconds_per_byte


def fit_all_reduce(points: Sequence[dict[str, Any]], processes: int) -> AllReduceFit:
    """Least squares of relative errors: each point's weight is 1 / seconds squared."""
    seconds = np.array([point["seconds"] for point in points])
    sent = [point["bytes"] * 2 * (processes - 1) / processes for point in points]
    slope, latency = np.polyfit(sent, seconds, 1, w=1 / seconds)  # It squares the weights.
    return AllReduceFit(float(latency), float(slope))


@dataclass(frozen=True)
class Scaling:
    """A benchmark, and how its steps are timed. Raises BenchError or RuleError."""

    benchmark: Benchmark
    processes: Sequence[int]
    strong: bool
    steps: int
    device: str
    data: Path

    def batch_size(self, processes: int) -> int:
        """The batch of all processes together: the default, or with weak scaling one for each."""
        default = int(self.benchmark.defaults()["batch_size"])
        return default if self.strong else default * processes

    def __post_init__(self) -> None:
        for processes in self.processes:
            size = self.batch_size(processes)
            if size % processes:
                raise BenchError(f"{processes} processes cannot share a batch of {size} equally")
            self._check_batch(size)

    def fits(self, batch_size: int) -> bool:
        try:
            self._check_batch(batch_size)
        except RuleError:
            return False
        return True

    def _check_batch(self, size: int) -> None:
        check_settings(self.benchmark, self.benchmark.divisions[-1], {"batch_size": float(size)})


def measure_group(
    asked: Scaling, processes: int, batch_size: int, *, all_reduce: bool = False
) -> dict[str, Any]:
    """Time steps in so many processes. Raises BenchError with the training's last words."""
    orders = {
        "reference": reference_of(asked.benchmark).reference,
        "hyperparameters": hyperparameters(asked.benchmark, {"batch_size": batch_size}),
        "device": "cuda" if processes > 1 and asked.device.startswith("cuda") else asked.device,
        "data_dir": str(asked.data),
        "steps": asked.steps,
        "all_reduce": all_reduce,
    }
    return run_group(orders, processes)


def run_scaling(asked: Scaling, say: Say) -> dict[str, Any]:
    """Every number of processes in turn, one process as the base of each speedup.

    A step's seconds are the median of all steps, measured and predicted alike: one step that the
    machine paused would move a mean.
    """
    groups: dict[tuple[int, int], dict[str, Any]] = {}
    largest = max(asked.processes)

    def measured(processes: int, batch_size: int) -> dict[str, Any]:
        key = processes, batch_size
        if key not in groups:
            say(f"{processes} processes, batches of {batch_size}")
            groups[key] = measure_group(asked, *key, all_reduce=1 < processes == largest)
        return groups[key]

    absent: dict[str, str] = {}
    base_batch = asked.batch_size(1)
    base = base_batch / median(measured(1, base_batch)["step_seconds"])
    widest = measured(largest, asked.batch_size(largest))
    fit = fit_all_reduce(widest["all_reduce"], largest) if largest > 1 else None
    points = []
    for index, processes in enumerate(asked.processes):
        batch_size = asked.batch_size(processes)
        found = measured(processes, batch_size)
        step_seconds = median(found["step_seconds"])
        share, predicted = None, None
        exchanged = [value for value in found["communication_seconds"] if value is not None]
        if processes > 1 and exchanged:
            share = fmean(exchanged) / fmean(found["step_seconds"])
        else:
            absent[f"points[{index}].communication_share"] = "nothing is exchanged"
        own_batch = batch_size // processes
        if asked.fits(own_batch):
            predicted = median(measured(1, own_batch)["step_seconds"])
            if processes > 1 and fit is not None:
                predicted += fit.seconds(found["gradient_bytes"], processes)
        else:
            absent[f"points[{index}].predicted_step_seconds"] = (
                f"the reference takes no batch of {own_batch} in one process"
            )
        speedup = batch_size / step_seconds / base
        points.append({
            "processes": processes,
            "batch_size": batch_size,
            "steps": asked.steps,
            "step_seconds": step_seconds,
            "step_seconds_range": [min(found["step_seconds"]), max(found["step_seconds"])],
            "samples_per_second": batch_size / step_seconds,
            "speedup": speedup,
            "efficiency": speedup / processes,
            "communication_share": share,
            "gradient_bytes": found["gradient_bytes"],
            "predicted_step_seconds": predicted,
        })  # fmt: skip
    if fit is None:
        absent["all_reduce"] = "one process has nobody to reduce with"
    elif fit.seconds_per_byte <= 0:
        absent["all_reduce.bytes_per_second"] = "longer messages took no longer: the noise decides"
    return {
        "scaling": "strong" if asked.strong else "weak",
        "points": points,
        "all_reduce": None if fit is None else {
            "processes": largest,
            "latency_seconds": fit.latency_seconds,
            "bytes_per_second": 1 / fit.seconds_per_byte if fit.seconds_per_byte > 0 else None,
            "points": widest["all_reduce"],
        },
        "absent": absent,
    }  # fmt: skip
