"""Calibrate: train the reference to its last epoch, with the figures to judge others by."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.verification.job import Purpose, Request, Words, draw, trainings_of
from finishline.rules.verification.messages import Measure, Training


def plan_calibration(request: Request) -> list[Training]:
    """Plan `runs` trainings at one `batch_size`, from seeds that are not `taken`.

    With a wish `precision` the worker measures whether they were trained in it.
    """
    wishes, label = request.wishes, b"finishline calibration"
    drawn = draw(request.entropy, runs=wishes["runs"], label=label, taken=wishes["taken"])
    settings, precision = {"batch_size": float(wishes["batch_size"])}, wishes.get("precision")
    measure: tuple[Measure, ...] = ("tta",) if precision is None else ("tta", "profile")
    return trainings_of(
        drawn, request.package, settings, stop_at="end", measure=measure, precision=precision
    )


def calibrated_by(benchmark: Benchmark, runs: Sequence[ReferenceRun]) -> Benchmark:
    """Replace a benchmark's reference runs by a calibration's."""
    return replace(benchmark, reference_runs=tuple(runs))


def runs_sha256(runs: Sequence[ReferenceRun]) -> str:
    """Hash a calibration's runs for a seal, over their compact JSON, sorted, with SHA-256."""
    rows = sorted([run.batch_size, run.seed, list(run.quality)] for run in runs)
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def judged_beside(calibration_id: str, calibrated: Benchmark) -> dict[str, str]:
    """Return the fields sealed with the draw of a replay that an adopted calibration judges."""
    return {
        "calibration": calibration_id,
        "reference_runs_sha256": runs_sha256(calibrated.reference_runs),
    }


def reference_run_toml(run: ReferenceRun) -> str:
    """Write one `[[reference_runs]]` table of a benchmark file."""
    numbers = ", ".join(f"{value:.4f}" for value in run.quality)
    head = f"batch_size = {run.batch_size}\nseed = {run.seed}"
    return f"[[reference_runs]]\n{head}\nquality = [{numbers}]"


CALIBRATION = Purpose(
    name="calibration",
    track="calibration",
    plan=plan_calibration,
    judge=lambda case: None,  # The runs are the measure of others.
    why_not=lambda benchmark, claims: (
        f"{benchmark.benchmark_id} has no reference model to calibrate yet"
        if benchmark.replay is None
        else None
    ),
    unable="cannot be calibrated",
    words=Words(
        to_do="train the reference in",
        doing="Training the reference in",
        endings={"": "The reference was measured in {runs}."},
        subject="the reference",
    ),
    claims=0,
)
