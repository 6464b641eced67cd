"""Compute figures of a machine: precisions, peaks, a training's share of them, energy, drift."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from finishline.rules.measurements import Figure, ModelWork, PrecisionName
from finishline.rules.run import Phase
from finishline.rules.verification.messages import ReplayRun

# From wide to narrow. Of the two types of 16 bits bfloat16 keeps fewer digits.
WIDE_TO_NARROW: tuple[PrecisionName, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")


def is_narrower(one: PrecisionName, other: PrecisionName) -> bool:
    """Whether `one` keeps less of a number than `other`."""
    return WIDE_TO_NARROW.index(one) > WIDE_TO_NARROW.index(other)


@dataclass(frozen=True)
class Roofline:
    """Roofline of a training on its machine, in FLOP/s.

    `intensity` is FLOP per byte, `attainable_flops` the limit by peak throughput and bandwidth
    there. `utilisation` is achieved FLOP/s by the peak (model FLOPs utilisation, MFU),
    `of_attainable` by the attainable FLOP/s.
    """

    achieved_flops: float
    intensity: float | None
    utilisation: float | None
    attainable_flops: float | None = None
    of_attainable: float | None = None
    bound: Literal["compute", "bandwidth"] | None = None


def roofline(
    work: ModelWork,
    *,
    seconds_per_step: float,
    roof_flops: float | None,
    bytes_per_second: float | None,
) -> Roofline:
    """Compute the roofline point of a training step. Raises ValueError on a step without time.

    Source: MLPerf training_rules.adoc, utilisation. Williams, Waterman, Patterson, "Roofline".
    """
    if seconds_per_step <= 0:
        raise ValueError(f"seconds_per_step is {seconds_per_step:g}; expected more than 0")
    achieved = work.step_flops / seconds_per_step
    intensity = work.step_flops / work.step_bytes if work.step_bytes else None
    utilisation = achieved / roof_flops if roof_flops else None
    if intensity is None or not roof_flops or not bytes_per_second:
        return Roofline(achieved, intensity, utilisation)
    attainable = min(roof_flops, intensity * bytes_per_second)
    return Roofline(
        achieved_flops=achieved,
        intensity=intensity,
        utilisation=utilisation,
        attainable_flops=attainable,
        of_attainable=achieved / attainable,
        bound="compute" if attainable >= roof_flops else "bandwidth",
    )


def best_roof_tflops(figures: Mapping[str, Figure], precision: str | None) -> float | None:
    """Return the best of matmul and convolution in a type: sometimes convolution is faster."""
    roofs = [figures.get(f"{what}_{precision}") for what in ("gemm", "convolution")]
    values = [roof.value for roof in roofs if roof is not None and roof.value is not None]
    return max(values, default=None)


@dataclass(frozen=True)
class RunUtilisation:
    """Utilisation of its machine by a run, in the train phase up to the last evaluation.

    `utilisation` is model FLOPs utilisation (MFU): achieved FLOP/s by `roof_flops`, the worker's
    peak throughput in the `precision` of the training times its processes. `intensity` is FLOP per
    byte of a step. Unknown figures are None, and `missing` says why.
    """

    run: int
    samples_per_second: float | None = None
    achieved_flops: float | None = None
    utilisation: float | None = None
    roof_flops: float | None = None
    precision: str | None = None
    intensity: float | None = None
    missing: str | None = None


def samples_per_second(run: ReplayRun) -> float | None:
    """Return the samples a second of the train phase up to the last evaluation."""
    if not run.evaluations:
        return None
    last = run.evaluations[-1]
    seconds = last.ledger.get(Phase.TRAIN.value, 0.0)
    return last.samples / seconds if last.samples and seconds > 0 else None


TOLERANCE = 0.03
