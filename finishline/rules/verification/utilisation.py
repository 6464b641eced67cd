"""Figures of a machine: precisions, roofs, a training's share of them, energy, drift."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from finishline.rules.measurements import Figure, ModelWork, PrecisionName
from finishline.rules.run import Clock, Ledger, Phase
from finishline.rules.verification.messages import ReplayReport, ReplayRun

# From wide to narrow. Of the two types of 16 bits bfloat16 keeps fewer digits.
WIDE_TO_NARROW: tuple[PrecisionName, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
# Those that the operands of a product show.
NARROW: tuple[PrecisionName, ...] = ("fp16", "bf16")
# Relative errors of a product of normal numbers: about 1e-7, 3e-4 and 2e-3.
LARGEST_FP32_ERROR = 1e-5
LARGEST_TF32_ERROR = 8e-4


def is_narrower(one: PrecisionName, other: PrecisionName) -> bool:
    """Whether `one` keeps less of a number than `other`."""
    return WIDE_TO_NARROW.index(one) > WIDE_TO_NARROW.index(other)


def narrowest(names: Iterable[PrecisionName]) -> PrecisionName | None:
    """The narrowest of some types, which names the whole run.

    Source: MLPerf training_rules.adoc, appendix on utilisation: the lowest precision touched
    is the label of the run.
    """
    return max(names, key=WIDE_TO_NARROW.index, default=None)


def precision_by_error(relative_error: float) -> PrecisionName:
    """Type that a float32 product was really computed in, by its error against float64."""
    if relative_error <= LARGEST_FP32_ERROR:
        return "fp32"
    return "tf32" if relative_error <= LARGEST_TF32_ERROR else "bf16"


def counted_since(earlier: float, later: float, *, wraps_at: float | None) -> float:
    """Difference of two readings of a counter that starts at 0 again at `wraps_at`.

    More than one turn cannot be seen: read it often enough. Raises ValueError on a counter that
    went back without a limit to wrap at.
    """
    if later >= earlier:
        return later - earlier
    if wraps_at is None or earlier > wraps_at:
        raise ValueError(f"an energy counter went back from {earlier:g} to {later:g}")
    return wraps_at - earlier + later


def timed_joules(joules_by_phase: Mapping[str, float], clock: Clock) -> float:
    """The joules of the phases that are on a benchmark's clock.

    An excess of preparation over the allowance counts in seconds, and not in joules.
    """
    known = {item.name for item in fields(Ledger)}
    joules = {phase: value for phase, value in joules_by_phase.items() if phase in known}
    if clock.name != "dawnbench":
        joules |= {"init": 0.0, "compile": 0.0, "warmup": 0.0}
    return clock.seconds(Ledger(**joules), division="open")


def samples_per_joule(samples: int, joules: float | None) -> float | None:
    """Samples trained on for each joule, None where no energy was measured."""
    return None if joules is None or joules <= 0 else samples / joules


def energy_to_target_joules(joules_of_runs: Sequence[float | None]) -> float | None:
    """The mean joules of the runs that reached the target, None unless all were measured."""
    measured = [joules for joules in joules_of_runs if joules is not None]
    if not measured or len(measured) < len(joules_of_runs):
        return None
    return sum(measured) / len(measured)


def processor_share(
    cpu_seconds: float | None, seconds: float | None, *, threads: int
) -> float | None:
    """Processor seconds by seconds of the clock, for each thread, at most 1."""
    if cpu_seconds is None or not seconds:
        return None
    return min(1.0, cpu_seconds / seconds / threads)


TERA = 1e12


@dataclass(frozen=True)
class Roofline:
    """Roofline of a training on its machine, in FLOP/s.

    `intensity` is FLOP per byte, `attainable_flops` what peak throughput and bandwidth allow there.
    `utilisation` is achieved FLOP/s by the peak (model FLOPs utilisation, MFU), `of_attainable` by
    the attainable FLOP/s.
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
    """The roofline point of a training step. Raises ValueError on a step without time.

    Source: MLPerf training_rules.adoc, utilisation; Williams, Waterman, Patterson, "Roofline".
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
    """The best of matmul and convolution in a type: on some machines convolution is faster."""
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


def run_utilisations(
    report: ReplayReport, figures: Mapping[str, Figure]
) -> tuple[RunUtilisation, ...]:
    """The utilisation of every run of a report, by the figures that its worker last measured."""
    return tuple(_run_utilisation(run, report, figures) for run in report.runs)


def _run_utilisation(
    run: ReplayRun, report: ReplayReport, figures: Mapping[str, Figure]
) -> RunUtilisation:
    rate = samples_per_second(run)
    if rate is None:
        return RunUtilisation(run.index, missing="no evaluation was measured after training")
    if report.work is None or report.work.batch_size < 1:
        missing = "the work of a step was not counted by the worker"
        return RunUtilisation(run.index, rate, missing=missing)
    precision = report.precision.lowest if report.precision is not None else None
    best = best_roof_tflops(figures, precision)
    roof_flops = best * TERA * report.processes if best else None
    if not figures:
        missing = "the worker has no measured roof to compare with"
    elif precision is None:
        missing = "the precision of the training is unknown"
    else:
        missing = f"the worker has no measured roof in {precision}"
    point = roofline(
        report.work,
        seconds_per_step=report.work.batch_size / rate,
        roof_flops=roof_flops,
        bytes_per_second=None,
    )
    return RunUtilisation(
        run=run.index,
        samples_per_second=rate,
        achieved_flops=point.achieved_flops,
        utilisation=point.utilisation,
        roof_flops=roof_flops,
        precision=precision,
        intensity=point.intensity,
        missing=None if roof_flops else missing,
    )


def samples_per_second(run: ReplayRun) -> float | None:
    """Samples a second of the train phase up to the last evaluation."""
    if not run.evaluations:
        return None
    last = run.evaluations[-1]
    seconds = last.ledger.get(Phase.TRAIN.value, 0.0)
    return last.samples / seconds if last.samples and seconds > 0 else None


TOLERANCE = 0.03
BASELINE_READINGS = 5
FEWEST_READINGS = 3


@dataclass(frozen=True)
class Drift:
    """Distance of a speed check from its worker's baseline. `ratio` is above 1 if it is faster."""

    baseline_gflops: float
    ratio: float

    @property
    def is_too_far(self) -> bool:
        """Whether the worker is off by more than 3 %, in either direction."""
        return abs(self.ratio - 1.0) > TOLERANCE

    def sentence(self) -> str:
        """Sentence on the fault and its remedy."""
        side = "slower" if self.ratio < 1 else "faster"
        return (
            f"{100 * abs(self.ratio - 1):.1f} % {side} than its own baseline of "
            f"{self.baseline_gflops:.4g} GFLOP/s, where {100 * TOLERANCE:g} % is allowed: look for "
            "a busy neighbour, heat, a power limit or another driver"
        )


def baseline_of(readings_gflops: Sequence[float]) -> float | None:
    """The median of a worker's first five readings, oldest first, None with fewer than three.

    A worker that loses a little every day keeps the baseline of its first days.
    """
    first = readings_gflops[:BASELINE_READINGS]
    if len(first) < FEWEST_READINGS:
        return None
    return float(statistics.median(first))


def drift_of(reading_gflops: float, baseline_gflops: float | None) -> Drift | None:
    """A reading compared with its baseline, None where there is no baseline yet."""
    if baseline_gflops is None or baseline_gflops <= 0:
        return None
    return Drift(baseline_gflops, reading_gflops / baseline_gflops)
