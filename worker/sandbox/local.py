"""Train a code submission on this machine, in a worker's sandbox and by a worker's clock.

`python -m worker.sandbox.local PACKAGE BENCHMARK.toml --runs 3` writes one JSON event a line to
standard output: `box`, then per run `asked` for each evaluation and `run_finished`. Exit code 0
when every run reached the target, 3 when one missed it or failed, 4 if the sandbox cannot start.
With `--compare FOLDER` each run is a pair on one seed and the same data: A B B A, where A is
FOLDER. With `--plain` code submissions run without a sandbox, with `--plain-task` your task too.
"""

import argparse
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.trainings.manifest import FILE, Manifest, read_manifest
from finishline.rules.verification.job import data_nonce, draw, target_spec
from worker.events import tell
from worker.sandbox.course import Ask, RaceResult
from worker.sandbox.order import AnyBackend, BoxUnavailableError, Order, installed_environments
from worker.sandbox.protocol import Limits
from worker.sandbox.start import check_box
from worker.sandbox.task import TaskBox, TaskError, task_module

MISSED, UNAVAILABLE, USAGE = 3, 4, 2
PLAIN = {"entries": "off", "why": "--plain"}


@dataclass(frozen=True)
class Racer:
    """A code submission to train. The other one is `compared` with it."""

    order: Order
    manifest: Manifest
    compared: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, print events, return the exit code."""
    return exit_code_of(partial(_run, _read_arguments(arguments)))


def _run(given: argparse.Namespace) -> int:
    benchmark = load_benchmark(given.benchmark)
    racers = []
    for package in filter(None, (given.compare, given.package)):
        manifest = read_manifest((package / FILE).read_bytes())
        racer = racer_of(package, manifest, benchmark, backend="plain" if given.plain else "bwrap")
        racers.append(replace(racer, compared=package is given.compare))
    if given.plain_task:
        tell("box", **PLAIN)
    else:
        require_box(plain=given.plain)
    backend: AnyBackend = "plain" if given.plain_task else "bwrap"
    folder = given.benchmark.with_suffix("")
    with open_task(folder, benchmark, backend=backend, data_dir=given.data_dir) as task:
        return _train(given, racers, benchmark, task)


def exit_code_of(run: Callable[[], int]) -> int:
    """Return a program's exit code. Its error is printed and has an exit code too."""
    try:
        return run()
    except (RuleError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except (BoxUnavailableError, TaskError) as error:
        print(f"error: {error}", file=sys.stderr)
        return UNAVAILABLE


def require_box(*, plain: bool = False) -> None:
    """Print whose code this host runs. Raises BoxUnavailableError. Plain code runs outside."""
    word = check_box()
    if word.entries == "off" or not plain:
        tell("box", entries=word.entries, why=word.why)
    else:
        tell("box", **PLAIN)
    if word.entries == "off":
        raise BoxUnavailableError(word.why or "this host has no sandbox")


def _train(
    given: argparse.Namespace, racers: Sequence[Racer], benchmark: Benchmark, task: TaskBox
) -> int:
    nonce = given.nonce or secrets.token_hex(32)
    # The nonce of a published measurement draws its seeds too.
    seeds = draw(bytes.fromhex(nonce), runs=given.runs).seeds
    missed = False
    for index in range(given.runs):
        seed = seeds[index] if given.seed is None else given.seed + index
        for racer in racers[:: -1 if index % 2 else 1]:
            say = partial(tell, run=index, compared=racer.compared)
            say("run_started", seed=seed, nonce=nonce)
            result = train_run(
                task,
                benchmark,
                racer,
                nonce=nonce,
                index=index,
                seed=seed,
                on_ask=partial(_asked, say),
            )
            say(
                "run_finished",
                seed=seed,
                status=result.status,
                seconds=result.seconds,
                budget_seconds=benchmark.reach.budget_seconds,
                evaluations=len(result.asks),
                predictions_sha256=[ask.predictions_sha256 for ask in result.asks],
                quality=result.asks[-1].quality if result.asks else None,
                second_half=result.asks[-1].second_half if result.asks else None,
                ledger=asdict(result.ledger),
                peak_bytes=result.peak_bytes,
                processor_share=result.processor_share,
                code=result.code,
                message=result.message,
                log_tail=result.log_tail,
            )
            missed = missed or result.status != "reached"
    return MISSED if missed else 0


def train_run(
    task: TaskBox,
    benchmark: Benchmark,
    racer: Racer,
    *,
    nonce: str,
    index: int,
    seed: int,
    factors: bool = True,
    control: bool = False,
    on_ask: Callable[[Ask], None] = lambda _: None,
) -> RaceResult:
    """Train run `index` of a nonce, with all factors or without. Equal numbers draw equal data."""
    return task.train(
        racer.order,
        nonce=data_nonce(bytes.fromhex(nonce), index),
        seed=seed,
        benchmark_id=benchmark.benchmark_id,
        target=target_spec(benchmark),
        factors=dict.fromkeys(racer.manifest.factors or {}, factors),
        control=control,
        on_ask=on_ask,
    )


def racer_of(
    package: Path, manifest: Manifest, benchmark: Benchmark, *, backend: AnyBackend = "bwrap"
) -> Racer:
    """Order a code submission's training. Raises RuleError if its environment is missing here."""
    installed = installed_environments(compiler=True)
    environment = installed.get(manifest.environment)
    if environment is None:
        raise RuleError(
            f"environment {manifest.environment} is not installed here",
            file=FILE,
            field="environment",
            expected=" or ".join(installed) or "an installed one",
        )
    limits, policy = Limits(), benchmark.trainings
    if policy is not None:
        limits = Limits.of_submission(policy, run_seconds=policy.run_limit_seconds)
    order = environment.order(package, module=manifest.module, limits=limits, backend=backend)
    return Racer(order, manifest)


def open_task(
    folder: Path,
    benchmark: Benchmark,
    *,
    backend: AnyBackend = "bwrap",
    data_dir: Path | None = None,
) -> TaskBox:
    """Start the task in the folder next to a benchmark's definition. Raises TaskError."""
    data_dir = data_dir or Path(os.environ.get("FINISHLINE_DATA_DIR", "var/data"))
    return TaskBox(task_module(folder, benchmark.benchmark_id, data_dir), backend=backend)


def _asked(say: Callable[..., None], ask: Ask) -> None:
    say("asked", number=ask.number, seconds=ask.seconds, quality=ask.quality)


def _read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m worker.sandbox.local")
    parser.add_argument("package", type=Path, help="the code submission's folder")
    parser.add_argument("benchmark", type=Path, help="the benchmark's TOML file")
    parser.add_argument("--compare", type=Path, help="folder of a code submission to train in turn")
    parser.add_argument(
        "--plain", action="store_true", help="run code submissions without a sandbox"
    )
    parser.add_argument("--plain-task", action="store_true", help="run the task without a sandbox")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, help="seed of the first run; of the nonce if absent")
    parser.add_argument("--data-dir", type=Path, help="folder of the data sets")
    parser.add_argument("--nonce", help="64 hex digits that data and seeds are drawn from")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
