"""A worker's further measurements: sensors, precision, work, peaks, speed.

Plain values that cross between worker and server. A missing figure is None, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PrecisionName = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"]
# A worker that measures nothing sends the peak ("roof") of its hardware class, once.
ProbeMoment = Literal["start", "before", "after", "recheck", "roof"]


# Below this share of a processor, other programs slowed the training down.
QUIET_CPU_SHARE = 0.8


@dataclass(frozen=True)
class RunTelemetry:
    """Sensor readings over one run.

    `energy_joules` counts exactly the phases on the benchmark's clock. Its `energy_source` is
    "nvml" for accelerators or "powercap" for processor packages. `samples_per_joule` counts samples
    up to the last evaluation. Power, clock, temperature and utilisation are of the accelerators
    from the start of the clock on, read `readings` times. `memory_peak_bytes` is of the training
    process, `accelerator_memory_peak_bytes` the most that torch had allocated.
    `communication_share` (0 to 1) is the share of train seconds in which the first of several
    processes only exchanged gradients, up to the last evaluation, and `communication_how` its
    method. Both are None for a single process.
    """

    readings: int = 0
    energy_joules: float | None = None
    energy_source: str | None = None
    samples_per_joule: float | None = None
    power_mean_watts: float | None = None
    power_max_watts: float | None = None
    clock_mean_mhz: float | None = None
    temperature_max_celsius: float | None = None
    utilisation_mean_percent: float | None = None
    memory_peak_bytes: int | None = None
    accelerator_memory_peak_bytes: int | None = None
    communication_share: float | None = None
    communication_how: str | None = None


@dataclass(frozen=True)
class PrecisionAudit:
    """The narrowest floating type that a matmul or convolution of the training touched.

    `lowest` is None without such an operation. `observed` counts operations by the type of their
    operands. `flags` are the settings of torch for float32, `canary_errors` the relative errors of
    a float32 matmul and convolution against float64. `opaque` lists parts closed to the audit.
    `scope` names the watched part.
    """

    lowest: PrecisionName | None
    observed: Mapping[str, int]
    autocast: bool
    flags: Mapping[str, str] = field(default_factory=dict)
    canary_errors: Mapping[str, float] = field(default_factory=dict)
    opaque: list[str] = field(default_factory=list)
    scope: str = "one training step"


@dataclass(frozen=True)
class ModelWork:
    """Work of one training step: FLOPs of its matmuls and convolutions, and the bytes they move.

    `step_bytes` counts every operand and result of these operations once, as if without a cache.
    """

    batch_size: int
    step_flops: float
    step_bytes: float


@dataclass(frozen=True)
class Figure:
    """One figure of a probe. `how` says how it was measured, or why it is absent."""

    value: float | None
    unit: str
    how: str


@dataclass(frozen=True)
class Canary:
    """A short speed check: whether a worker is still as fast as it was.

    Only readings of one `configuration` are comparable: torch version, figure and accelerator.
    """

    gflops: float
    configuration: str
    how: str


@dataclass(frozen=True)
class WorkerProbe:
    """A worker's measurements of itself at one moment. `figures` and `host` may be empty."""

    worker: str
    moment: ProbeMoment
    canary: Canary | None = None
    figures: dict[str, Figure] = field(default_factory=dict)
    host: dict[str, str | None] = field(default_factory=dict)
    seconds: float | None = None
    attempt_id: str | None = None


@dataclass(frozen=True)
class ProbeAnswer:
    """The server's answer to a speed check. `drifted` takes the worker out. `message` says why."""

    drifted: bool = False
    baseline_gflops: float | None = None
    ratio: float | None = None
    message: str | None = None
