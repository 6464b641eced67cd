"""A folder with the files of a submission, as `finishline run` leaves it."""

import json
from pathlib import Path

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.run import Evaluation, Ledger, Run
from worker.stopwatch import write_run_log

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SYSTEM = {"name": "laptop", "hardware_class": "cpu", "processor": "two cores"}
CLAIM = {"benchmark": "digits", "division": "closed", "model": "conv", "framework": "torch",
         "system": SYSTEM, "hyperparameters": {"batch_size": 64}}  # fmt: skip


def write_submission(folder, *, finals=(98.0,) * 3, **claim):
    """Runs of two evaluations, at 10 and at 20 seconds, the second of the given quality."""
    folder.mkdir(exist_ok=True)
    benchmark = load_benchmark(BENCHMARKS / "digits.toml")
    names = [f"run_{number}.log" for number in range(len(finals))]
    for seed, (name, final) in enumerate(zip(names, finals, strict=True)):
        run = Run(
            name=name,
            clock="mlperf",
            evaluations=(
                Evaluation(epoch=1.0, seconds=10.0, quality=50.0, ledger=Ledger(train=10.0)),
                Evaluation(epoch=2.0, seconds=20.0, quality=final, ledger=Ledger(train=20.0)),
            ),
            status="success" if final >= 97.5 else "aborted",
            stop_seconds=20.0,
            seed=seed,
            batch_size=64,
            benchmark="digits",
            division="closed",
            ledger=Ledger(train=20.0),
        )
        log = write_run_log(run, benchmark=benchmark, started_at_ms=1_700_000_000_000)
        (folder / name).write_text(log)
    (folder / "submission.json").write_text(json.dumps(CLAIM | {"runs": names} | claim))
    return folder
