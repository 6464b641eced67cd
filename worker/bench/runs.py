"""What all benches share: processes that measure, the machine's description, absent figures.

And two benches. A reference trains and infers on made-up data of the right shape, so nothing is
downloaded and nothing learned. The machine's peak throughput is measured beside it, or alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.measurements import Figure, ModelWork
from finishline.rules.scoring.latency import FEWEST_SAMPLES, nearest_rank, percentile
from finishline.rules.scoring.tta import calibrated_epochs
from finishline.rules.statistics.aggregate import mean
from finishline.rules.submissions.claim import reference_of
from finishline.rules.verification.utilisation import best_roof_tflops, roofline
from worker.child_process import ChildError, Measure, answer_of
from worker.events import Answer
from worker.machine.probe import describe_surroundings, probe

Say = Callable[[str], None]

ROOFS_SECONDS = 20.0
ROOF_SECONDS_EACH = 0.4
START_SECONDS = 120.0  # A process that loads torch, and a device that wakes up.
TERA, GIGA = 1e12, 1e9
GROUP_SECONDS = 600.0
MEASURING_ROOFS = "measuring the roofs of this machine"


class BenchError(RuntimeError):
    """A measurement without which there is no result was not made."""


def describe_machine(device: str, *, threads: int) -> dict[str, Any]:
    """The machine, in the words of every result."""
    system = asdict(probe(threads=threads, device=device))
    return {"device": device, "system": system, "host": describe_surroundings(device)}


def require(answer: Answer | None, what: str, *, hint: str = "") -> Answer:
    """The answer of a measurement. Raises BenchError where there is none."""
    if answer is None:
        raise BenchError(
            f"{what} was not measured: its process failed or took too long, as the line above "
            f"says{hint}"
        )
    if "missing" in answer:
        raise BenchError(answer["missing"])
    return answer


def absent_figures(
    rows: Sequence[Mapping[str, Any]], reasons: Mapping[str, str], *, seconds: str, calls: str
) -> dict[str, str]:
    """The reason for each figure that a row lacks, by name. `seconds` names its distribution."""
    absent = {name: why for name, why in reasons.items() if any(row[name] is None for row in rows)}
    for percent, least in FEWEST_SAMPLES.items():
        if any(row[seconds][f"p{percent}"] is None for row in rows):
            absent[f"{seconds}.p{percent}"] = f"fewer than {least} {calls} were timed"
    return absent


def distribution(values: Sequence[float]) -> dict[str, float | int | None]:
    """Count, mean and percentiles of some values, by nearest rank. None below enough samples."""
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "mean": mean(ordered),
        "p50": nearest_rank(ordered, 50),
        "p90": percentile(ordered, 90),
        "p99": percentile(ordered, 99),
    }


def run_group(orders: Mapping[str, Any], processes: int) -> dict[str, Any]:
    """Result of worker.bench.steps in so many processes. Raises BenchError with its last words."""
    try:
        found = answer_of("worker.bench.steps", orders, GROUP_SECONDS, processes=processes)
    except ChildError as error:
        raise BenchError(f"{processes} processes: the measurement {error}") from error
    return require(found, f"{processes} processes")


def run_machine(
    device: str, *, threads: int, seconds: float, measure: Measure, say: Say
) -> dict[str, Any]:
    """The roofs of this machine. Raises BenchError if they can't be measured."""
    say(MEASURING_ROOFS)
    orders = roof_orders(device, seconds) | {"threads": threads}
    found = require(
        measure("worker.machine.peak", orders, ROOFS_SECONDS + START_SECONDS), "The machine"
    )
    return {**describe_machine(device, threads=threads), "roofs": found["figures"]}


def roof_orders(device: str, seconds: float) -> dict[str, Any]:
    """Orders of a measurement of roofs, of at most so many seconds each."""
    each = min(ROOF_SECONDS_EACH, seconds)
    return {"device": device, "limit_seconds": ROOFS_SECONDS, "seconds_each": each}


@dataclass(frozen=True)
class ReferenceBench:
    """A benchmark's reference with all its hyperparameters, and how it is measured."""

    benchmark: Benchmark
    settings: Mapping[str, float]
    device: str
    threads: int
    seconds: float


def run_reference(asked: ReferenceBench, measure: Measure, say: Say) -> dict[str, Any]:
    """Every measurement in turn. Raises BenchError without a throughput. The others may lack."""
    reference = reference_of(asked.benchmark).reference
    orders = {
        "reference": reference,
        "hyperparameters": dict(asked.settings),
        "threads": asked.threads,
        "seconds": asked.seconds,
        "data_dir": "",
        **roof_orders(asked.device, asked.seconds),
    }

    def measured(module: str, seconds: float) -> Answer | None:
        return measure(module, orders, seconds + START_SECONDS)

    say("training and inference on made-up data")
    throughput = require(
        measured("worker.bench.throughput", 4 * asked.seconds),
        asked.benchmark.benchmark_id,
        hint="; --set batch_size=... makes a step smaller",
    )
    say("profiling one training step: precision, FLOPs")
    audit = measured("worker.machine.precision", 0.0) or {}
    say(MEASURING_ROOFS)
    roofs = measured("worker.machine.peak", ROOFS_SECONDS) or {}
    figures = TypeAdapter(dict[str, Figure]).validate_python(roofs.get("figures", {}))
    return {
        "benchmark": asked.benchmark.benchmark_id,
        "reference": reference,
        "hyperparameters": dict(asked.settings),
        **describe_machine(asked.device, threads=asked.threads),
        "training": throughput["training"],
        "inference": throughput["inference"],
        "telemetry": throughput["telemetry"],
        "to_target": _to_target(asked, throughput),
        "precision": audit.get("precision"),
        "work": audit.get("work"),
        "roofline": _place_under_roofs(throughput, audit, figures),
        "roofs": {name: asdict(figure) for name, figure in figures.items()},
    }


def _to_target(asked: ReferenceBench, throughput: Answer) -> dict[str, float] | None:
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


def _place_under_roofs(
    throughput: Answer, audit: Answer, figures: Mapping[str, Figure]
) -> dict[str, Any] | None:
    """The training's point under the measured roofs. None where its work is not known."""
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
