"""Utilisation and roofline: the work of a model against the measured roofs of a machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rules.measurements import Figure, ModelWork


@dataclass(frozen=True)
class Roofline:
    """Where a training stands under the roofs of its machine.

    `intensity` is FLOP per byte, `attainable_flops` the FLOP/s that roof and bandwidth allow there,
    `bound` which of the two it is. `utilisation` is achieved FLOP/s by the compute roof (model
    FLOPs utilisation, MFU), `of_attainable` by what is attainable. What lacks a measured roof is
    None.
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
    """The roofline point of a training step.

    `roof_flops` is the best measured FLOP/s in the type of the training over matmul and
    convolution, `bytes_per_second` the copy bandwidth. Raises ValueError on a step without time.
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
    """The best of matmul and convolution in a type; None where neither was measured.

    Convolution is the faster of the two on some machines: held against matmul alone a
    convolutional network would pass 100 %.
    """
    roofs = [figures.get(f"{what}_{precision}") for what in ("gemm", "convolution")]
    values = [roof.value for roof in roofs if roof is not None and roof.value is not None]
    return max(values, default=None)
