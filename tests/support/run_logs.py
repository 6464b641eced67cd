"""Run logs that a test or a measurement makes, in the spelling of the worker's own."""

from collections.abc import Callable, Sequence

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.logs.mllog_write import write_run_log
from finishline.rules.scoring.run import Evaluation, Ledger, Run

SAMPLES_PER_EPOCH = 1152  # Of digits at batch size 64, which drops the last batch.
STARTED_AT_MS = 1_790_000_000_000


def make_run_log(
    benchmark: Benchmark,
    qualities: Sequence[float],
    train_seconds: Callable[[int], float],
    *,
    name: str,
    seed: int,
    batch_size: int = 64,
    division: str = "closed",
    prepared: Ledger = Ledger(init=2.0, warmup=0.2),  # noqa: B008  it is frozen
    eval_seconds: float = 0.004,
    started_at_ms: int = STARTED_AT_MS,
) -> bytes:
    """The MLLOG of a run that succeeded, evaluated once an epoch.

    `qualities` are of the epochs from the first, `train_seconds` says for each (from 1) how long
    training had taken by then; `eval_seconds` is of one evaluation, `prepared` what came before.
    """
    evaluations = []
    for epoch, quality in enumerate(qualities, start=1):
        ledger = Ledger(
            init=prepared.init,
            warmup=prepared.warmup,
            train=train_seconds(epoch),
            eval=epoch * eval_seconds,
        )
        evaluations.append(
            Evaluation(
                epoch=float(epoch),
                seconds=ledger.train + ledger.eval,
                quality=quality,
                samples=SAMPLES_PER_EPOCH * epoch,
                ledger=ledger,
            )
        )
    run = Run(
        name=name,
        clock="mlperf",
        evaluations=tuple(evaluations),
        status="success",
        stop_seconds=evaluations[-1].seconds,
        seed=seed,
        batch_size=batch_size,
        benchmark=benchmark.benchmark_id,
        division=division,
        ledger=evaluations[-1].ledger,
    )
    return write_run_log(run, benchmark=benchmark, started_at_ms=started_at_ms).encode()
