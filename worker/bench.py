"""Throughput of a reference on this machine: `python -m worker.bench benchmarks/digits.toml`.

Trains and infers on made-up data of the right shape, so nothing is downloaded and nothing learned,
and measures the machine's roofs beside it. Writes one JSON object per line on standard output: its
next step, and last the result. Exit code 2 with a sentence where something cannot be done.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from finishline.devices import choose_device
from finishline.rules.benchmarks.benchmark import Benchmark, load_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.measurements import Figure, ModelWork
from finishline.rules.scoring.latency import FEWEST_SAMPLES
from finishline.rules.scoring.tta import calibrated_epochs
from finishline.rules.submissions.claim import check_settings, reference_of
from finishline.rules.verification.utilisation import best_roof_tflops, roofline
from worker.group import ORDERS, launch_options
from worker.json_events import tell
from worker.local import hyperparameters, read_setting
from worker.probe import describe_surroundings, probe
from worker.processes import Answer, Measure, child_environment, measure_apart

ROOFS_SECONDS = 20.0
ROOF_SECONDS_EACH = 0.4
START_SECONDS = 120.0  # A process that loads torch, and a device that wakes up.
DEFAULT_SECONDS = 5.0
TERA, GIGA = 1e12, 1e9
GROUP_RESULT = "result.json"
GROUP_SECONDS = 600.0


@dataclass(frozen=True)
class Bench:
    """Options of the command line."""

    benchmark: Benchmark
    reference: str
    settings: Mapping[str, float]
    device: str
    threads: int
    seconds: float

    def orders(self) -> dict[str, Any]:
        return {
            "reference": self.reference,
            "hyperparameters": dict(self.settings),
            "device": self.device,
            "threads": self.threads,
            "seconds": self.seconds,
            "limit_seconds": ROOFS_SECONDS,
            "seconds_each": min(ROOF_SECONDS_EACH, self.seconds),
            "data_dir": "",
        }


MODULES = {
    "throughput": "worker.throughput",
    "audit": "worker.precision_probe",
    "roofs": "worker.roofs",
}


class BenchError(RuntimeError):
    """A measurement without which there is no result was not made."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.benchmark is None:
        return tell_result(lambda: measure_machine(given, measure_apart))
    return tell_result(lambda: run_bench(read_arguments(arguments), measure_apart))


def measure_machine(given: argparse.Namespace, measure: Measure) -> dict[str, Any]:
    """The roofs of this machine. Raises BenchError if they can't be measured."""
    tell("doing", doing="roofs")
    device = choose_device(given.device)
    orders = {
        "device": device,
        "threads": max(1, given.threads),
        "limit_seconds": ROOFS_SECONDS,
        "seconds_each": min(ROOF_SECONDS_EACH, given.seconds),
    }
    found = require(measure(MODULES["roofs"], orders, ROOFS_SECONDS + START_SECONDS), "The machine")
    return {**describe_machine(device, threads=orders["threads"]), "roofs": found["figures"]}


def tell_result(measured: Callable[[], Mapping[str, Any]]) -> int:
    """Tell a result; returns the exit code, 2 with a sentence where it cannot be measured."""
    try:
        tell("result", result=measured())
    except (RuleError, BenchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def describe_machine(device: str, *, threads: int) -> dict[str, Any]:
    """The machine, in the words of every result."""
    system = asdict(probe(threads=threads, device=device))
    return {"device": device, "system": system, "host": describe_surroundings(device)}


def require(answer: Answer | None, model: str, *, hint: str = "") -> Answer:
    """The answer of a model's measurement. Raises BenchError where there is none."""
    if answer is None:
        raise BenchError(
            f"{model} was not measured: its process failed or took too long, as the line above "
            f"says{hint}"
        )
    if "missing" in answer:
        raise BenchError(answer["missing"])
    return answer


def absent_figures(
    rows: Sequence[Mapping[str, Any]], reasons: Mapping[str, str], *, seconds: str, calls: str
) -> dict[str, str]:
    """The reason for each figure that a row lacks, by name; `seconds` names its distribution."""
    absent = {name: why for name, why in reasons.items() if any(row[name] is None for row in rows)}
    for percent, least in FEWEST_SAMPLES.items():
        if any(row[seconds][f"p{percent}"] is None for row in rows):
            absent[f"{seconds}.p{percent}"] = f"fewer than {least} {calls} were timed"
    return absent


def run_group(orders: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """Result of worker.group_steps in so many processes. Raises BenchError with its last words."""
    with tempfile.TemporaryDirectory(prefix="finishline-group-") as folder:
        (Path(folder) / ORDERS).write_text(json.dumps(dict(orders)))
        group = ["-m", "worker.group", str(os.getpid()), folder, *launch_options(processes)]
        try:
            done = subprocess.run(
                [sys.executable, *group, "-m", "worker.group_steps"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=child_environment(1),
                timeout=GROUP_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{processes} processes took longer than 10 minutes") from error
        sys.stderr.buffer.write(done.stderr)
        result = Path(folder) / GROUP_RESULT
        found: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {}
    if not found or "error" in found:
        raise BenchError(found.get("error", f"{processes} processes ended without a result"))
    return found


def run_bench(asked: Bench, measure: Measure) -> dict[str, Any]:
    """Every measurement in turn. Raises BenchError without a throughput; the others may lack."""

    def measured(what: str, seconds: float) -> Answer | None:
        tell("doing", doing=what)
        return measure(MODULES[what], asked.orders(), seconds + START_SECONDS)

    throughput = measured("throughput", 4 * asked.seconds)
    if throughput is None or "missing" in throughput:
        said = (throughput or {}).get("missing") or (
            "its training failed or took too long, as the line above says; --set batch_size=..."
            " makes a step smaller"
        )
        raise BenchError(f"{asked.benchmark.benchmark_id} was not measured: {said}")
    audit = measured("audit", 0.0) or {}
    roofs = measured("roofs", ROOFS_SECONDS) or {}
    figures = TypeAdapter(dict[str, Figure]).validate_python(roofs.get("figures", {}))
    return {
        "benchmark": asked.benchmark.benchmark_id,
        "reference": asked.reference,
        "hyperparameters": dict(asked.settings),
        **describe_machine(asked.device, threads=asked.threads),
        "training": throughput["training"],
        "inference": throughput["inference"],
        "telemetry": throughput["telemetry"],
        "to_target": to_target(asked, throughput),
        "precision": audit.get("precision"),
        "work": audit.get("work"),
        "roofline": place_under_roofs(throughput, audit, figures),
        "roofs": {name: asdict(figure) for name, figure in figures.items()},
    }


def to_target(asked: Bench, throughput: Answer) -> dict[str, float] | None:
    """Epochs the reference takes to the target at this batch size, and their seconds here.

    Steps alone are counted, no evaluation. None where the benchmark has no runs at that size.
    """
    batch_size = asked.settings.get("batch_size")
    reached = [] if batch_size is None else calibrated_epochs(asked.benchmark, batch_size)
    if not reached:
        return None
    epochs = fmean(reached)
    seconds = throughput["training"]["seconds_per_call"] * throughput["steps_per_epoch"]
    return {"epochs": epochs, "epoch_seconds": seconds, "training_seconds": epochs * seconds}


def place_under_roofs(
    throughput: Answer, audit: Answer, figures: Mapping[str, Figure]
) -> dict[str, Any] | None:
    """The training's point under the measured roofs; None where its work is not known."""
    if not audit.get("work") or not audit.get("precision"):
        return None
    work = TypeAdapter(ModelWork).validate_python(audit["work"])
    roof = best_roof_tflops(figures, audit["precision"]["lowest"])
    copy = figures.get("copy")
    point = roofline(
        work,
        seconds_per_step=throughput["training"]["seconds_per_call"],
        roof_flops=None if roof is None else roof * TERA,
        bytes_per_second=None if copy is None or copy.value is None else copy.value * GIGA,
    )
    return asdict(point)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m worker.bench")
    parser.add_argument("benchmark", type=Path, nargs="?", help="TOML file (default: the roofs)")
    parser.add_argument(
        "--set", action="append", default=[], type=read_setting, metavar="NAME=VALUE"
    )
    parser.add_argument("--device", help="default: cuda:0 where there is one, else cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS)
    return parser


def read_arguments(arguments: Sequence[str] | None = None) -> Bench:
    """The command line, checked. Raises RuleError naming the benchmark's file and field."""
    given = _parser().parse_args(arguments)
    benchmark = load_benchmark(given.benchmark)
    replay = reference_of(benchmark)
    settings = dict(given.set)
    check_settings(benchmark, benchmark.divisions[-1], settings)
    return Bench(
        benchmark=benchmark,
        reference=replay.reference,
        settings=hyperparameters(benchmark, settings),
        device=choose_device(given.device),
        threads=max(1, given.threads),
        seconds=max(0.1, given.seconds),
    )


if __name__ == "__main__":
    sys.exit(main())
