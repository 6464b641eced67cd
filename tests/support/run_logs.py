"""Run logs that a test or a measurement makes, in the spelling of the worker's own."""

from finishline.rules.logs.mllog_write import write_run_log
from finishline.rules.scoring.run import Evaluation, Ledger, Run

SAMPLES_PER_EPOCH = 1152  # Of digits at batch size 64, which drops the last batch.
STARTED_AT_MS = 1_790_000_000_000


def make_run_log(
    benchmark,
    qualities,
    train_seconds,
    *,
    name,
    seed,
    batch_size=64,
    division="closed",
    prepared=Ledger(init=2.0, warmup=0.2),
    eval_seconds=0.004,
    started_at_ms=STARTED_AT_MS,
):
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
