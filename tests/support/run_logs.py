"""Claims of digits and logs of their runs, in the spelling of the worker's own."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.run import Evaluation, Ledger, Run
from worker.stopwatch import write_run_log

SAMPLES_PER_EPOCH = 1152  # Of digits at batch size 64, which drops the last batch.
STARTED_AT_MS = 1_790_000_000_000
PREPARED = Ledger(init=2.0, warmup=0.2)
REFERENCE = [14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1]
SECONDS_PER_EPOCH = 0.11
DIGITS = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "digits.toml")
SYSTEM = {
    "name": "two-core test machine",
    "hardware_class": "cpu-test",
    "processor": "test processor",
    "processor_count": 2,
    "memory_gib": 24,
    "price_usd_per_hour": 0.1,
    "price_source": "price list of the test",
}
CLAIM = {
    "benchmark": "digits",
    "division": "closed",
    "model": "digits reference",
    "framework": "torch 2.13.0",
    "system": SYSTEM,
    "hyperparameters": {"batch_size": 64},
    "trained_with": "reference",
}


def make_run_log(
    benchmark,
    qualities,
    train_seconds,
    *,
    name,
    seed,
    batch_size=64,
    division="closed",
    status="success",
    prepared=PREPARED,
    eval_seconds=0.004,
    started_at_ms=STARTED_AT_MS,
):
    """The MLLOG of a run, evaluated once an epoch.

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
        status=status,
        stop_seconds=evaluations[-1].seconds,
        seed=seed,
        batch_size=batch_size,
        benchmark=benchmark.benchmark_id,
        division=division,
        ledger=evaluations[-1].ledger,
    )
    return write_run_log(run, benchmark=benchmark, started_at_ms=started_at_ms).encode()


def curve_of(seed, curve):
    """A curve that only this seed has. It differs in its second evaluation.

    A curve that stands still is the same for every seed. Seeds of claims are below 10,000, and the
    server draws seeds from there to 2**32.
    """
    if len(set(curve)) < 2:
        return curve
    shift = seed % 7 + seed * 1e-5 if seed < 10_000 else seed * 1e-11
    return [curve[0], curve[1] + shift, *curve[2:]]


def build_log(
    digits,
    seed,
    *,
    name="run_0.log",
    epochs=8,
    qualities=None,
    division="closed",
    batch_size=64,
    seconds_per_epoch=SECONDS_PER_EPOCH,
    prepared=PREPARED,
):
    """An MLLOG of one digits run that reaches 98.1 % at epoch `epochs`."""
    curve = qualities or REFERENCE[-epochs:] if epochs <= len(REFERENCE) else REFERENCE
    if not qualities and len(curve) > 2:
        curve = curve_of(seed, curve)

    def train_seconds(epoch):
        # No two trainings agree in every time: two evaluations differ by the seed, which they
        # tell to the base of 20.
        digit = {2: seed % 20, 3: seed // 20 % 20}.get(epoch, 0)
        return epoch * seconds_per_epoch + 0.4 * seconds_per_epoch * digit / 20

    return make_run_log(
        digits,
        curve,
        train_seconds,
        name=name,
        seed=seed,
        batch_size=batch_size,
        division=division,
        prepared=prepared,
    )


@dataclass
class SubmissionParts:
    claim: dict[str, Any]
    logs: dict[str, bytes]
    form: dict[str, str] = field(default_factory=dict)

    def at(self, batch_size):
        """The same at another batch size, which is another configuration. Half and double are
        calibrated."""
        settings = self.claim["hyperparameters"]
        old, new = (f'"global_batch_size","value":{size},'.encode() for size in (64, batch_size))
        return replace(
            self,
            claim=self.claim | {"hyperparameters": settings | {"batch_size": batch_size}},
            logs={name: log.replace(old, new) for name, log in self.logs.items()},
        )

    def files(self):
        parts = [("submission", ("submission.json", orjson.dumps(self.claim)))]
        return parts + [("logs", (name, content)) for name, content in self.logs.items()]
