"""Calibration: train the reference to its last epoch, with the figures to judge others by."""

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.scoring.calibrated_runs import calibrated_epochs
from finishline.rules.statistics.aggregate import mean, standard_deviation
from finishline.rules.statistics.gaps import two_sided_p
from finishline.rules.submissions.claim import Claim
from finishline.rules.text import count_text
from finishline.rules.verification.control_points import control_points
from finishline.rules.verification.job import Draw, Purpose, Request, Words, trainings_of
from finishline.rules.verification.messages import ControlPoint, Measure, Training
from finishline.rules.verification.verdict import SHARES


def plan_calibration(request: Request) -> list[Training]:
    """Plan `runs` trainings at one `batch_size`, from seeds that are not `taken`.

    With a wish `precision` the worker finds out whether they were trained in it.
    """
    wishes, seeds = request.wishes, dict[int, None]()  # an ordered set
    for index in itertools.count():
        if len(seeds) == wishes["runs"]:
            break
        text = b"finishline calibration" + request.entropy + index.to_bytes(4, "big")
        seed = int.from_bytes(hashlib.sha256(text).digest()[:4], "big")
        if seed not in wishes["taken"]:
            seeds[seed] = None
    drawn = Draw(seeds=tuple(seeds), nonce=request.entropy.hex())
    settings, precision = {"batch_size": float(wishes["batch_size"])}, wishes.get("precision")
    measure: tuple[Measure, ...] = ("tta",) if precision is None else ("tta", "profile")
    return trainings_of(
        drawn, request.package, settings, stop_at="end", measure=measure, precision=precision
    )


def _why_not(benchmark: Benchmark, claims: Sequence[Claim]) -> str | None:
    if benchmark.replay is None:
        return f"{benchmark.benchmark_id} has no reference model to calibrate yet"
    return None


RUNS_PER_CHUNK = 10


@dataclass(frozen=True)
class ConvergenceAt:
    """Epochs the reference needs to its target at one batch size, of the runs that reached it.

    `stdev` has ddof = 1 and is None below two figures.
    """

    batch_size: int
    runs: int
    epochs: tuple[float, ...]
    mean: float | None
    stdev: float | None

    @property
    def reached(self) -> int:
        """Number of runs that reached the target."""
        return len(self.epochs)


@dataclass(frozen=True)
class BandDifference:
    """Distance of two calibrations at one evaluation, with bounds where both have a band."""

    index: int
    mean_difference: float
    lower_difference: float | None
    upper_difference: float | None


@dataclass(frozen=True)
class SizeComparison:
    """Two calibrations at one batch size: `difference` and band are the first's less the second's.

    `p_value` is two-sided, None below two runs that reached the target on either side.
    """

    batch_size: int
    first: ConvergenceAt
    second: ConvergenceAt
    difference: float | None
    p_value: float | None
    band: tuple[BandDifference, ...]


def chunk_sizes(runs: int) -> list[int]:
    """Number of runs in each verification of a calibration: even, and at most ten.

    A worker that is lost loses one chunk, and a lease is never held for hours.
    """
    chunks = math.ceil(runs / RUNS_PER_CHUNK)
    return [runs // chunks + (i < runs % chunks) for i in range(chunks)]


def calibrated_by(benchmark: Benchmark, runs: Sequence[ReferenceRun]) -> Benchmark:
    """Replace a benchmark's reference runs by those of a calibration."""
    return replace(benchmark, reference_runs=tuple(runs))


def runs_sha256(runs: Sequence[ReferenceRun]) -> str:
    """SHA-256 of a calibration's runs for a seal, over their compact JSON, sorted."""
    rows = sorted([run.batch_size, run.seed, list(run.quality)] for run in runs)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def judged_beside(calibration_id: str, calibrated: Benchmark) -> dict[str, str]:
    """Fields sealed beside the draw of a replay that an adopted calibration judges."""
    return {
        "calibration": calibration_id,
        "reference_runs_sha256": runs_sha256(calibrated.reference_runs),
    }


def convergence_at(
    benchmark: Benchmark, runs: Sequence[ReferenceRun], batch_size: int
) -> ConvergenceAt:
    """Epochs to the target at one batch size."""
    measured = calibrated_by(benchmark, runs)
    epochs = tuple(calibrated_epochs(measured, batch_size))
    return ConvergenceAt(
        batch_size=batch_size,
        runs=len(measured.reference_runs_at(batch_size)),
        epochs=epochs,
        mean=mean(epochs) if epochs else None,
        stdev=standard_deviation(epochs, ddof=1) if len(epochs) > 1 else None,
    )


def band_at(
    benchmark: Benchmark, runs: Sequence[ReferenceRun], batch_size: int
) -> list[ControlPoint]:
    """The band that the benchmark's largest replay has to stay in at one batch size."""
    policy = benchmark.replay
    if policy is None:
        return []
    curves, alpha = _curves(runs, batch_size), policy.alpha * SHARES.replay_band
    resolution = benchmark.target.resolution or 0.0
    return control_points(curves, runs=policy.max_runs, alpha=alpha, resolution=resolution)


def why_not_adoptable(benchmark: Benchmark, runs: Sequence[ReferenceRun]) -> str | None:
    """Reason why a benchmark cannot be judged by these runs, None if it can.

    Each batch size needs twice as many runs as the largest replay makes, or it has no band.
    """
    needed = 2 * (benchmark.replay.max_runs if benchmark.replay is not None else 1)
    for size in sorted({run.batch_size for run in runs}):
        point = convergence_at(benchmark, runs, size)
        if point.runs < needed:
            runs_there = count_text(point.runs, "run")
            return f"batch size {point.batch_size} has {runs_there} of at least {needed}"
        if len(point.epochs) < 2:
            return f"at batch size {point.batch_size} fewer than two runs reached the target"
    return None if runs else "it has no run"


def compare_calibrations(
    benchmark: Benchmark, first: Sequence[ReferenceRun], second: Sequence[ReferenceRun]
) -> list[SizeComparison]:
    """Compare two sets of runs at each batch size that both have, the smallest first.

    Source: Welch (1947) on the logarithms of the epochs to the target, two-sided.
    """
    found = []
    for size in sorted({run.batch_size for run in first} & {run.batch_size for run in second}):
        one, other = (convergence_at(benchmark, runs, size) for runs in (first, second))
        difference = None if one.mean is None or other.mean is None else one.mean - other.mean
        p_value = two_sided_p(one.epochs, other.epochs)
        band = tuple(_band_differences(benchmark, first, second, size))
        found.append(SizeComparison(size, one, other, difference, p_value, band))
    return found


def _band_differences(
    benchmark: Benchmark,
    first: Sequence[ReferenceRun],
    second: Sequence[ReferenceRun],
    batch_size: int,
) -> Iterator[BandDifference]:
    bands = [band_at(benchmark, runs, batch_size) for runs in (first, second)]
    columns = [list(zip(*_curves(runs, batch_size), strict=False)) for runs in (first, second)]
    for j, (one, other) in enumerate(zip(*columns, strict=False)):
        a, b = (band[j] if j < len(band) else None for band in bands)
        yield BandDifference(
            index=j + 1,
            mean_difference=mean(one) - mean(other),
            lower_difference=a.lower - b.lower if a and b else None,
            upper_difference=a.upper - b.upper if a and b else None,
        )


def _curves(runs: Sequence[ReferenceRun], batch_size: int) -> list[tuple[float, ...]]:
    return [run.quality for run in runs if run.batch_size == batch_size]


def reference_run_toml(run: ReferenceRun) -> str:
    """One `[[reference_runs]]` table of a benchmark file."""
    numbers = ", ".join(f"{value:.4f}" for value in run.quality)
    head = f"batch_size = {run.batch_size}\nseed = {run.seed}"
    return f"[[reference_runs]]\n{head}\nquality = [{numbers}]"


CALIBRATION = Purpose(
    name="calibration",
    plan=plan_calibration,
    judge=lambda case: None,  # The runs are the measure of others.
    why_not=_why_not,
    unable="cannot be calibrated",
    words=Words(
        to_do="train the reference in",
        doing="Training the reference in",
        endings={"": "The reference was measured in {runs}."},
        subject="the reference",
    ),
    claims=0,
    seals_settings=True,
)
