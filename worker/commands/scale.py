"""`finishline bench scale` and `profile`: a reference's steps in processes, and in parts."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any

import numpy as np
import typer

from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, UsageError
from finishline.cli.options import BenchmarksDir, Data
from finishline.cli.screen import Screen
from finishline.cli.tables import make_table
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.submissions.claim import check_precision, check_settings, reference_of
from worker.commands import measuring
from worker.local import hyperparameters

STEPS = "worker.bench.steps"
GROUP_SECONDS, PROFILE_SECONDS = 600.0, 3600.0
Groups = dict[tuple[int, int], dict[str, Any]]
Name = Annotated[str, typer.Argument(help="A benchmark's id, or the path of its file.")]
COLUMNS: measuring.Columns = (
    ("step", "step_seconds", 1, " s"),
    ("samples/s", "samples_per_second", 1, ""),
    ("speedup", "speedup", 1, ""),
    ("efficiency", "efficiency", 1, ""),
    ("communication", "communication_share", 100, " %"),
    ("predicted step", "predicted_step_seconds", 1, " s"),
)


def scale(
    screen: Screen,
    benchmark: Name,
    processes: Annotated[
        str, typer.Option("--processes", help="Numbers of processes, as 1,2,4.")
    ] = "1,2",
    strong: Annotated[
        bool, typer.Option("--strong", help="One batch, shared by all processes.")
    ] = False,
    weak: Annotated[bool, typer.Option("--weak", help="One batch for each process.")] = False,
    steps: measuring.Steps = 20,
    device: measuring.Device = None,
    data: Data = Path("var/data"),
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Time a reference's training steps in several processes, and their all-reduce."""
    counts = measuring.read_numbers(processes, "--processes", most=max(2, os.cpu_count() or 1))
    if strong == weak:
        raise UsageError("Choose one of --strong and --weak.")
    definition, orders = _steps_of(benchmark, benchmarks_dir, device, data, steps)
    default = int(definition.defaults()["batch_size"])
    batches = {count: default if strong else default * count for count in counts}
    for count, size in batches.items():
        if size % count:
            raise CliError(f"{count} processes cannot share a batch of {size} equally")
        _check_batch(definition, size)
    alone = [(1, size // count) for count, size in batches.items()]
    groups: Groups = {}
    for count, size in dict.fromkeys([(1, default), *batches.items(), *alone]):
        try:
            _check_batch(definition, size)
        except RuleError:
            continue  # The part of one process is too small for the reference.
        screen.say(f"{count} processes, batches of {size} ...")
        where = "cuda" if count > 1 and orders["device"].startswith("cuda") else orders["device"]
        more = {
            "hyperparameters": hyperparameters(definition, {"batch_size": size}),
            "device": where,
            "all_reduce": 1 < count == max(counts),
        }
        what = f"{benchmark} in {count} processes"
        groups[count, size] = measuring.ask(
            STEPS, orders | more, GROUP_SECONDS, what=what, processes=count
        )
    result = {"scaling": "strong" if strong else "weak", **reckon_scaling(groups, batches, default)}
    words = {"processes": "processes", "batch": "batch_size"}
    measuring.tell(screen, result, [measuring.table_of(result["points"], words, COLUMNS)])


def _steps_of(
    name: str, folder: Path | None, device: str | None, data: Path, steps: int
) -> tuple[Benchmark, dict[str, Any]]:
    """Find a benchmark whose reference has default settings, and the orders for its steps."""
    orders = measuring.begin(device=device, data_dir=str(data), steps=steps)
    _, benchmark = find_benchmark(name, folder)
    check_precision(benchmark, None)
    check_settings(benchmark, benchmark.divisions[0], {})
    reference = reference_of(benchmark).reference
    return benchmark, orders | {
        "reference": reference,
        "hyperparameters": hyperparameters(benchmark, {}),
    }


def _check_batch(benchmark: Benchmark, size: int) -> None:
    check_settings(benchmark, benchmark.divisions[-1], {"batch_size": float(size)})


@dataclass(frozen=True)
class AllReduceFit:
    """T(bytes) = latency + bytes * 2 (p - 1) / p / bytes_per_second."""

    latency_seconds: float
    seconds_per_byte: float

    def seconds(self, size: float, processes: int) -> float:
        """Return seconds of one all-reduce of so many bytes over so many processes."""
        return self.latency_seconds + size * 2 * (processes - 1) / processes * self.seconds_per_byte


def fit_all_reduce(points: Sequence[measuring.Result], processes: int) -> AllReduceFit:
    """Least squares of relative errors: each point's weight is 1 / seconds squared."""
    seconds = np.array([point["seconds"] for point in points])
    sent = [point["bytes"] * 2 * (processes - 1) / processes for point in points]
    slope, latency = np.polyfit(sent, seconds, 1, w=1 / seconds)  # It squares the weights.
    return AllReduceFit(float(latency), float(slope))


def reckon_scaling(groups: Groups, batches: Mapping[int, int], default: int) -> dict[str, Any]:
    """Return the points of measured steps by processes and batch.

    A step's seconds are the median, because one paused step would move a mean.
    """
    absent: dict[str, str] = {}
    largest = max(batches)
    exchanges = groups[largest, batches[largest]]["all_reduce"]
    fit = fit_all_reduce(exchanges, largest) if largest > 1 else None
    base = default / median(groups[1, default]["step_seconds"])
    points = []
    for index, (processes, size) in enumerate(batches.items()):
        found, own_size = groups[processes, size], size // processes
        step_seconds = median(found["step_seconds"])
        share, predicted = None, None
        exchanged = [value for value in found["communication_seconds"] if value is not None]
        if processes > 1 and exchanged:
            share = fmean(exchanged) / fmean(found["step_seconds"])
        else:
            absent[f"points[{index}].communication_share"] = "nothing is exchanged"
        if (1, own_size) in groups:
            predicted = median(groups[1, own_size]["step_seconds"])
            if processes > 1 and fit is not None:
                predicted += fit.seconds(found["gradient_bytes"], processes)
        else:
            absent[f"points[{index}].predicted_step_seconds"] = (
                f"the reference takes no batch of {own_size} in one process"
            )
        speedup = size / step_seconds / base
        points.append({
            "processes": processes,
            "batch_size": size,
            "steps": len(found["step_seconds"]),
            "step_seconds": step_seconds,
            "step_seconds_range": [min(found["step_seconds"]), max(found["step_seconds"])],
            "samples_per_second": size / step_seconds,
            "speedup": speedup,
            "efficiency": speedup / processes,
            "communication_share": share,
            "gradient_bytes": found["gradient_bytes"],
            "predicted_step_seconds": predicted,
        })  # fmt: skip
    if fit is None:
        absent["all_reduce"] = "needs at least two processes"
        return {"points": points, "all_reduce": None, "absent": absent}
    rate = 1 / fit.seconds_per_byte if fit.seconds_per_byte > 0 else None
    if rate is None:
        absent["all_reduce.bytes_per_second"] = "longer messages took no longer: the noise decides"
    reduced = {
        "processes": largest,
        "latency_seconds": fit.latency_seconds,
        "bytes_per_second": rate,
        "points": exchanges,
    }
    return {"points": points, "all_reduce": reduced, "absent": absent}


def profile(
    screen: Screen,
    benchmark: Name,
    out: Annotated[Path, typer.Option("--out", help="Folder for trace.json.")],
    steps: measuring.Steps = 20,
    device: measuring.Device = None,
    data: Data = Path("var/data"),
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Time the parts of a reference's training step, and trace some steps."""
    definition, orders = _steps_of(benchmark, benchmarks_dir, device, data, steps)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "trace.json").write_text("")
    except OSError as error:
        raise CliError(
            f"Cannot write in {out} ({error.strerror}); choose another folder."
        ) from error
    screen.say("timing and tracing training steps ...")
    what = definition.benchmark_id
    result = measuring.ask(STEPS, orders | {"out": str(out)}, PROFILE_SECONDS, what=what)
    table = make_table("part", "milliseconds", right=("milliseconds",))
    for part, seconds in (result["parts_seconds"] | {"step": result["step_seconds"]}).items():
        table.add_row(part, measuring.figure_text(seconds, scale=1000))
    table.add_row("bottleneck", result["bottleneck"])
    measuring.tell(screen, result, [table, f"Wrote {out / 'trace.json'}."])
