"""Train a reference on this machine as a submitter would, with the worker's own clock.

`python -m worker.local benchmarks/digits.toml --runs 3 --out DIR` writes DIR/submission.json and a
run log per run, and writes one JSON event per line to standard output. Exit code 0 when every run
ended by itself, at its target or before. 1 with a sentence when a run failed. 2 with a sentence,
before any file is written, when the first run could not begin.
"""

import argparse
import json
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from finishline.devices import choose_device
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.run import Evaluation, Ledger, Run
from finishline.rules.submissions.claim import check_precision, check_settings, reference_of
from finishline.rules.verification.job import target_spec
from finishline.rules.verification.messages import (
    ReplayJob,
    ReplayRun,
    Training,
    WorkerSystem,
)
from reference_models.data import require_data
from reference_models.precision import require_precision
from worker.child_process import Host
from worker.machine.probe import node_of, probe
from worker.outbox import Announcer
from worker.stopwatch import write_run_log
from worker.training import train_run

SEED_LIMIT = 2**31


@dataclass(frozen=True)
class Chosen:
    """Options of the command line."""

    benchmark: Benchmark
    runs: int
    out: Path
    settings: Mapping[str, float]
    seeds: tuple[int, ...]
    division: str
    host: Host
    hardware_class: str | None = None
    precision: PrecisionName | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        chosen = read_arguments(given)
        job = local_job(chosen)
        training = job.trainings[0]
        require_data(training.package, chosen.host.data_dir, training.settings)
        if chosen.host.device != "cpu":  # On a processor torch is already imported.
            import_module("reference_models.distributed").check_device(chosen.host.device)
        try:
            chosen.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuleError(
                f"Cannot write in {chosen.out} ({error.strerror}); choose another folder."
            ) from error
    except (RuleError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        return run_locally(chosen, job)
    except (RuleError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run_locally(chosen: Chosen, job: ReplayJob) -> int:
    """Train every run and write its log at once. The submission last. Returns the exit code."""
    system = probe(
        hardware_class=chosen.hardware_class,
        threads=chosen.host.threads,
        device=chosen.host.device,
    )
    announcer = Announcer(lambda event: print(orjson.dumps(event).decode(), flush=True))
    for index in range(chosen.runs):
        started_at_ms = time.time_ns() // 1_000_000
        run = train_run(job, index, host=chosen.host, announcer=announcer, stop=lambda: None)
        if run.failure is not None:
            print(run.log_tail, file=sys.stderr)
            print(f"error: run {index}: {run.failure.message}", file=sys.stderr)
            return 1
        logged = as_run(run, job, host=chosen.host)
        log = write_run_log(logged, benchmark=chosen.benchmark, started_at_ms=started_at_ms)
        (chosen.out / log_name(index)).write_text(log)
    text = json.dumps(submission(chosen, system, job), indent=2) + "\n"
    (chosen.out / "submission.json").write_text(text)
    return 0


def local_job(chosen: Chosen) -> ReplayJob:
    """Build the job of a local training: a replay without attempt and control points."""
    benchmark, replay = chosen.benchmark, reference_of(chosen.benchmark)
    return ReplayJob(
        attempt_id="local",
        verification_id="local",
        submission_id="local",
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        data_set_sha256=benchmark.data_set.sha256,
        trainings=[
            Training(
                replay.reference,
                hyperparameters(benchmark, chosen.settings),
                seed,
                precision=replay.told(chosen.precision),
            )
            for seed in chosen.seeds
        ],
        target=target_spec(benchmark),
        clock=benchmark.clock.name,
        division=chosen.division,
        control_points=[],
        run_limit_seconds=replay.run_limit_seconds,
    )


def hyperparameters(benchmark: Benchmark, settings: Mapping[str, float]) -> dict[str, float]:
    """Return the reference's hyperparameters with the chosen settings. Whole numbers as such."""
    values = benchmark.defaults() | dict(settings)
    return {
        name: int(value) if benchmark.hyperparameters[name].integer else value
        for name, value in values.items()
    }


def as_run(run: ReplayRun, job: ReplayJob, *, host: Host) -> Run:
    """Return a trained run as the log formats describe one. Only processors have a share."""
    evaluations = tuple(
        Evaluation(
            epoch=item.epoch,
            seconds=item.seconds,
            quality=item.quality,
            samples=item.samples,
            ledger=Ledger(**item.ledger),
        )
        for item in run.evaluations
    )
    return Run(
        name=log_name(run.index),
        clock=job.clock,
        evaluations=evaluations,
        status="success" if run.status == "reached" else "aborted",
        stop_seconds=evaluations[-1].seconds if evaluations else None,
        seed=run.seed,
        batch_size=int(job.trainings[0].settings["batch_size"]),
        benchmark=job.benchmark_id,
        division=job.division,
        hyperparameters=job.trainings[0].settings,
        ledger=Ledger(**run.ledger),
        processor_share=processor_share(run.cpu_seconds, run.child_seconds, threads=host.threads)
        if host.device == "cpu"
        else None,
    )


def submission(chosen: Chosen, system: WorkerSystem, job: ReplayJob) -> dict[str, Any]:
    stated = {} if chosen.precision is None else {"precision": chosen.precision}
    return stated | {
        "benchmark": chosen.benchmark.benchmark_id,
        "division": chosen.division,
        "model": f"{chosen.benchmark.title} reference",
        "framework": f"torch {version('torch')}",
        "system": asdict(node_of(system))
        | {
            "hardware_class": system.hardware_class,
            "price_usd_per_hour": None,
            "price_source": None,
        },
        "hyperparameters": job.trainings[0].settings,
        "trained_with": "reference",
        "runs": [log_name(index) for index in range(chosen.runs)],
        "code_url": None,
        "notes": None,
    }


def log_name(index: int) -> str:
    return f"run_{index}.log"


def read_arguments(arguments: Sequence[str] | None = None) -> Chosen:
    """Return the command line, checked. Raises RuleError naming the benchmark's file and field."""
    parser = argparse.ArgumentParser(prog="python -m worker.local")
    parser.add_argument("benchmark", type=Path, help="the benchmark's TOML file")
    parser.add_argument("--runs", type=_positive, default=3)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--set", action="append", default=[], type=read_setting, metavar="NAME=VALUE"
    )
    parser.add_argument("--seed", type=int, help="seed of the first run; drawn if absent")
    parser.add_argument("--division", help="default: the benchmark's first")
    parser.add_argument("--precision", help="default: the reference's own, not stated")
    parser.add_argument("--device", help="default: cuda:0 where there is one, else cpu")
    parser.add_argument("--hardware-class", help="default: made from the parts of this machine")
    parser.add_argument("--data-dir", type=Path, default=Path("var/data"))
    given = parser.parse_args(arguments)
    benchmark = load_benchmark(given.benchmark)
    division = given.division or benchmark.divisions[0]
    settings = dict(given.set)
    check_settings(benchmark, division, settings)
    device = choose_device(given.device)
    precision = check_precision(benchmark, given.precision)
    require_precision(precision, device)
    seed = secrets.randbelow(SEED_LIMIT) if given.seed is None else given.seed
    return Chosen(
        benchmark=benchmark,
        runs=given.runs,
        out=given.out,
        settings=settings,
        seeds=tuple(seed + index for index in range(given.runs)),
        division=division,
        host=Host(device=device, data_dir=given.data_dir),
        hardware_class=given.hardware_class,
        precision=precision,
    )


def read_setting(text: str) -> tuple[str, float]:
    """NAME=VALUE, the value as a number. Raises ValueError."""
    name, _, value = text.partition("=")
    return name, float(value)


def _positive(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError
    return count


def processor_share(
    cpu_seconds: float | None, seconds: float | None, *, threads: int
) -> float | None:
    """Processor seconds by seconds of the clock, for each thread, at most 1."""
    if cpu_seconds is None or not seconds:
        return None
    return min(1.0, cpu_seconds / seconds / threads)


if __name__ == "__main__":
    sys.exit(main())
