"""A roofline as the API and the pages show it."""

from pydantic import BaseModel


class RoofView(BaseModel):
    """The best FLOP/s of a floating type over matmul and convolution, in 10^12."""

    precision: str
    tflops: float
    how: str


class RooflinePointView(BaseModel):
    """One attempt's training: FLOP per byte, and the 10^12 FLOP/s it came to.

    `attainable_tflops` is what the roofs allow at that intensity and `bound` which of them does;
    None where the worker did not measure them.
    """

    verification_id: str
    benchmark: str
    model: str | None
    precision: str | None
    intensity: float
    achieved_tflops: float
    attainable_tflops: float | None
    share_of_attainable: float | None
    bound: str | None


class RooflineView(BaseModel):
    """The measured roofs of a worker and its latest trainings of known work, newest first.

    Seconds are those in training, without evaluation; the median over an attempt's runs.
    """

    worker: str
    roofs: list[RoofView]
    copy_gb_per_second: float | None
    points: list[RooflinePointView]
