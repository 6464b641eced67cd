"""Effect of precision on a benchmark's reference, from every calibration of its definition."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.benchmarks import PrecisionAmount, PrecisionRow, PrecisionView
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.precisions import (
    Amount,
    PrecisionEffect,
    PrecisionRun,
    precision_effects,
)
from server.base.models import Calibration, CalibrationRunRow
from server.benchmarks.calibrations import COMPLETE


def precision_view(session: Session, benchmark: Benchmark) -> PrecisionView:
    """Epochs and seconds to the target by precision, beside the reference's own."""
    offered = () if benchmark.replay is None else benchmark.replay.precisions
    if not offered:
        return PrecisionView(benchmark=benchmark.benchmark_id)
    runs = _calibrated(session, benchmark, base=offered[0])
    seen = {run.precision for run in runs if run.hardware_class is not None}
    effects = precision_effects(benchmark, runs, base=offered[0])
    return PrecisionView(
        benchmark=benchmark.benchmark_id,
        base=offered[0],
        batch_size=int(benchmark.defaults()["batch_size"]),
        missing=[name for name in offered if name not in seen],
        rows=[_row(effect) for effect in effects],
    )


def _calibrated(session: Session, benchmark: Benchmark, *, base: str) -> list[PrecisionRun]:
    """Runs to their last epoch: those of the file, and those of every calibration."""
    rows = session.execute(
        select(
            Calibration.precision,
            CalibrationRunRow.batch_size,
            CalibrationRunRow.quality,
            CalibrationRunRow.seconds,
            CalibrationRunRow.system,
        )
        .join(Calibration, Calibration.id == CalibrationRunRow.calibration_id)
        .where(
            Calibration.benchmark_sha256 == benchmark.sha256,
            CalibrationRunRow.status.in_(COMPLETE),
        )
    )
    return [PrecisionRun(base, run.batch_size, run.quality) for run in benchmark.reference_runs] + [
        PrecisionRun(
            row.precision or base,
            row.batch_size,
            tuple(row.quality),
            tuple(row.seconds),
            row.system["hardware_class"],
        )
        for row in rows
    ]


def _row(effect: PrecisionEffect) -> PrecisionRow:
    return PrecisionRow(
        precision=effect.precision,
        batch_size=effect.batch_size,
        hardware_class=effect.hardware_class,
        runs=effect.runs,
        reached=effect.reached,
        epochs=_amount(effect.epochs),
        seconds=_amount(effect.seconds),
    )


def _amount(found: Amount | None) -> PrecisionAmount | None:
    if found is None:
        return None
    own, ratio = found.interval, found.ratio_interval
    return PrecisionAmount(
        mean=found.mean,
        low=None if own is None else own.low,
        high=None if own is None else own.high,
        ratio=found.ratio,
        ratio_low=None if ratio is None else ratio.low,
        ratio_high=None if ratio is None else ratio.high,
    )
