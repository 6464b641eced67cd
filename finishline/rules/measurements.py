"""Measurements of a worker beside quality and time: sensors, precision, work, roofs, canary.

Plain values that cross between worker and server. A figure that could not be measured is None,
never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PrecisionName = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8"]
# A worker that measures nothing of itself tells the "roof" of its hardware class, once.
ProbeMoment = Literal["start", "before", "after", "recheck", "roof"]


# A training that had less of a processor than this was kept from it by its neighbours.
QUIET_CPU_SHARE = 0.8


@dataclass(frozen=True)
class RunTelemetry:
    """Sensor readings over one run.

    `energy_joules` counts over the phases that are on the benchmark's clock and no others.
    `energy_source` says which counter it is: "nvml" that of the accelerators,
    "powercap" that of the processor packages. `samples_per_joule` has the samples trained on up to
    the last evaluation. Power, clock, temperature and utilisation are those of the accelerators
    from the start of the clock on; `readings` says how often they were asked. `memory_peak_bytes`
    is of the training process, `accelerator_memory_peak_bytes` the most that torch had allocated.
    `communication_share` is the share (0 to 1) of the train seconds in which the first of several
    processes exchanged gradients and computed nothing, up to the last evaluation, and
    `communication_how` how that was measured; both are None where one process trains alone.
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

    `lowest` is None where none was seen. `observed` counts the operations by the type of their
    operands. `flags` are the settings of torch that decide the meaning of float32, `canary_errors`
    the relative errors of a float32 matmul and convolution against float64. `opaque` lists parts
    that the audit cannot look into. `scope` names the part watched.
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
    """The work of one training step: FLOPs of its matmuls and convolutions, the bytes they move.

    `step_bytes` counts every operand and result of these operations once, as if no cache helped.
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
    """A short roof, measured to see whether a worker still is as fast as it was.

    Readings are compared within one `configuration` only: torch version, figure and accelerator.
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
    """The server's answer to a canary. `drifted` takes the worker out. `message` says why."""

    drifted: bool = False
    baseline_gflops: float | None = None
    ratio: float | None = None
    message: str | None = None
