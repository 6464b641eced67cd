"""`finishline bench train` and `machine`: a reference or any model on made-up data, and peaks."""

import csv as csv_files
import io
from collections.abc import Mapping
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Literal

import typer
from pydantic import TypeAdapter

from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, UsageError
from finishline.cli.options import BenchmarksDir
from finishline.cli.processes import read_settings
from finishline.cli.screen import Screen
from finishline.cli.tables import FittingTable, make_table
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.measurements import ModelWork
from finishline.rules.scoring.tta import calibrated_epochs
from finishline.rules.submissions.claim import check_settings, reference_of
from finishline.rules.verification.utilisation import best_roof_tflops, roofline
from worker.child_process import measure_apart
from worker.commands import measuring
from worker.events import Answer
from worker.local import hyperparameters
from worker.machine.sensors import samples_per_joule

BENCH_SECONDS = 5.0
ROW_FACTOR = 60.0  # One batch of a slow model takes many times the seconds to measure for.
Phase = Literal["inference", "training"]
Target = Annotated[
    str,
    typer.Argument(
        metavar="BENCHMARK|SPEC",
        help="Id or TOML of a benchmark, torchvision:NAME, hf:roberta or FILE.py:FUNCTION.",
    ),
]


def train(
    screen: Screen,
    target: Target,
    precision: measuring.Precision = None,
    batch_sizes: measuring.BatchSizes = None,
    phase: Annotated[
        Phase | None, typer.Option(help="One phase of a model. The default is both.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a sample of hf:roberta (default: 128).")
    ] = None,
    usd_per_hour: Annotated[
        float | None,
        typer.Option(
            min=measuring.LEAST, help="Price of this machine, for a model's samples per dollar."
        ),
    ] = None,
    seconds: measuring.Seconds = BENCH_SECONDS,
    device: measuring.Device = None,
    threads: measuring.Threads = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A hyperparameter. Repeat it for more."),
    ] = None,
    out: measuring.Out = None,
    csv: Annotated[
        Path | None, typer.Option(help="Also write a model's results to this file (CSV).")
    ] = None,
    benchmarks_dir: BenchmarksDir = None,
) -> None:
    """Measure training and inference of a benchmark's reference, or of any model.

    Data are made up and weights random: nothing is downloaded. A benchmark is measured with the
    peak throughput of this machine.
    """
    orders = measuring.begin(out, csv, device=device, threads=threads, seconds=seconds)
    if ":" in target and not Path(target).is_file():
        _refuse("a model", set=settings)
        measuring.check_spec(target)
        orders |= {"model": target, "tokens": tokens or 128, "precision": precision or "fp32"}
        result = bench_model(
            screen,
            orders,
            phases=(phase,) if phase else ("inference", "training"),
            batch_sizes=measuring.read_numbers(batch_sizes or "1,8", "--batch-sizes"),
            usd_per_hour=usd_per_hour,
        )
        if csv is not None:
            csv.write_text(results_csv(result))
        flops = measuring.figure_text(result["flops_per_sample"], " GFLOP", 1 / measuring.GIGA)
        size = f"{result['parameters']:,} parameters; {flops} a sample forward"
        table = measuring.table_of(
            result["results"], {"phase": "phase", "batch": "batch_size"}, MODEL
        )
        measuring.tell(screen, result, [table, f"{size}; {result['precision']}"], out)
    else:
        _refuse(
            "a benchmark", precision=precision, batch_sizes=batch_sizes, phase=phase,
            tokens=tokens, usd_per_hour=usd_per_hour, csv=csv,
        )  # fmt: skip
        _, benchmark = find_benchmark(target, benchmarks_dir)
        values = read_settings(settings or [])
        orders |= {"reference": reference_of(benchmark).reference, "data_dir": ""}
        check_settings(benchmark, benchmark.divisions[-1], values)
        orders |= {"hyperparameters": hyperparameters(benchmark, values)}
        result = bench_reference(screen, benchmark, orders)
        measuring.tell(screen, result, [reference_table(result)], out)


def _refuse(target: str, **options: Any) -> None:
    for name, value in options.items():
        if value not in (None, []):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} does not go with {target}. Leave it out.")


def machine(
    screen: Screen,
    seconds: measuring.Seconds = BENCH_SECONDS,
    device: measuring.Device = None,
    threads: measuring.Threads = 1,
    out: measuring.Out = None,
) -> None:
    """Measure the peak throughput of this machine: arithmetic by precision, memory and copies."""
    orders = measuring.begin(out, device=device, threads=threads, seconds=seconds)
    peaks = measuring.measure_peaks(screen, orders)
    if not peaks:
        raise CliError("The peak throughput was not measured, as the line above says.")
    roofs = {name: asdict(figure) for name, figure in peaks.items()}
    table = make_table("measure", "figure", "note", right=("figure",))
    _add_peaks(table, roofs)
    measuring.tell(screen, measuring.describe_machine(orders) | {"roofs": roofs}, [table], out)


def bench_reference(screen: Screen, benchmark: Benchmark, orders: Answer) -> dict[str, Any]:
    """Measure all in turn. Only a missing throughput raises CliError."""
    screen.say("training and inference on made-up data ...")
    throughput = measuring.ask(
        "worker.bench.throughput",
        orders,
        4 * orders["seconds"],
        what=benchmark.benchmark_id,
        hint="; --set batch_size=... makes a step smaller",
    )
    screen.say("profiling one training step: precision, FLOPs ...")
    audit = measure_apart("worker.machine.precision", orders, measuring.START_SECONDS) or {}
    peaks = measuring.measure_peaks(screen, orders)
    point = None
    if audit.get("work") and audit.get("precision"):
        roof, copy = best_roof_tflops(peaks, audit["precision"]["lowest"]), peaks.get("copy")
        point = roofline(
            TypeAdapter(ModelWork).validate_python(audit["work"]),
            seconds_per_step=throughput["training"]["seconds_per_call"],
            roof_flops=None if roof is None else roof * measuring.TERA,
            bytes_per_second=None
            if copy is None or copy.value is None
            else copy.value * measuring.GIGA,
        )
    return {
        "benchmark": benchmark.benchmark_id,
        "reference": orders["reference"],
        "hyperparameters": orders["hyperparameters"],
        **measuring.describe_machine(orders),
        "training": throughput["training"],
        "inference": throughput["inference"],
        "telemetry": throughput["telemetry"],
        "to_target": _to_target(benchmark, orders["hyperparameters"], throughput),
        "precision": audit.get("precision"),
        "work": audit.get("work"),
        "roofline": None if point is None else asdict(point),
        "roofs": {name: asdict(figure) for name, figure in peaks.items()},
    }


def _to_target(
    benchmark: Benchmark, settings: Mapping[str, float], throughput: Answer
) -> dict[str, float] | None:
    """Estimate epochs to the target and seconds of their steps. None without calibrated runs."""
    reached = calibrated_epochs(benchmark, settings.get("batch_size", 0))
    if not reached:
        return None
    epochs = fmean(reached)
    seconds = throughput["training"]["seconds_per_call"] * throughput["steps_per_epoch"]
    return {"epochs": epochs, "epoch_seconds": seconds, "training_seconds": epochs * seconds}


REASONS = {
    "samples_per_joule": "no energy counter can be read",
    "samples_per_dollar": "no price was given with --usd-per-hour",
    "peak_memory_bytes": "the peak of the process cannot be read",
}
CONVENTION = (
    "one multiply-add is two FLOPs, so FLOPs are twice the multiply-adds; matmuls, convolutions, "
    "LSTM and GRU gates and fused attention (whole, causal or not) are counted, nothing else; "
    "flops_per_sample at the top is a forward pass, that of a training result is forward and "
    "backward as they ran"
)


def bench_model(
    screen: Screen,
    orders: Answer,
    *,
    phases: tuple[Phase, ...],
    batch_sizes: list[int],
    usd_per_hour: float | None,
) -> dict[str, Any]:
    """Measure all in turn. Raises CliError if the model cannot be built or run."""
    model, precision, device = orders["model"], orders["precision"], orders["device"]
    measuring.check_precision(precision, device)

    def ask_model(seconds: float, **more: Any) -> Answer:
        hint = "; --batch-sizes 1 makes a step smaller"
        return measuring.ask("worker.bench.models", orders | more, seconds, what=model, hint=hint)

    screen.say("building the model and counting its FLOPs ...")
    work = ask_model(measuring.START_SECONDS)
    only = [f"{what}_{precision}" for what in ("gemm", "convolution")]
    roof = best_roof_tflops(measuring.measure_peaks(screen, orders, only=only), precision)
    peak = None if roof is None else roof * measuring.TERA
    results = []
    for phase, size in product(phases, batch_sizes):
        screen.say(f"{phase}, batches of {size} ...")
        row = ask_model(ROW_FACTOR * orders["seconds"], phase=phase, batch_size=size)
        samples, flops = size * len(row["batches"]), row["flops_per_sample"]
        rate = samples / sum(row["batches"])
        results.append({
            "phase": phase,
            "batch_size": size,
            "samples_per_second": rate,
            "batch_seconds": measuring.distribution(row["batches"]),
            "samples_per_joule": samples_per_joule(samples, row["joules"]),
            "samples_per_dollar": None if usd_per_hour is None else rate * 3600 / usd_per_hour,
            "flops_per_sample": flops,
            "mfu": None if peak is None or flops is None else flops * rate / peak,
            "peak_memory_bytes": row["peak_memory_bytes"],
        })  # fmt: skip
    absent: dict[str, str] = {}
    if peak is None:
        why = f"no roof was measured in {precision} on {device}"
        absent |= dict.fromkeys(("peak_flops_per_second", "peak_source", "mfu"), why)
    forward = work["flops_per_sample"]
    if forward is None:
        why = "no product that can be counted was seen in the model"
        absent |= dict.fromkeys(("flops_per_sample", "macs_per_sample", "mfu"), why)
    fewest = min(row["batch_seconds"]["n"] for row in results)
    return {
        "model": model,
        "precision": precision,
        **measuring.describe_machine(orders),
        "parameters": work["parameters"],
        "macs_per_sample": None if forward is None else int(forward) // 2,
        "flops_per_sample": None if forward is None else int(forward),
        "flops_convention": CONVENTION,
        "peak_flops_per_second": peak,
        "peak_source": None if peak is None else "measured",
        "absent": absent
        | measuring.why_absent(
            results, REASONS, fewest=fewest, path="batch_seconds", what="batches were timed"
        ),
        "results": results,
    }


def results_csv(result: measuring.Result) -> str:
    """Make a row for each result of a model, by the names of the JSON. Absent figures are empty."""
    rows = []
    for one in result["results"]:
        row = {name: result[name] for name in ("model", "precision", "device")} | one
        seconds = row.pop("batch_seconds")
        rows.append(row | {f"batch_seconds_{name}": value for name, value in seconds.items()})
    written = io.StringIO()
    writer = csv_files.DictWriter(written, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


MODEL: measuring.Columns = (
    ("samples/s", "samples_per_second", 1, ""),
    ("batch, p50", "batch_seconds.p50", 1, " s"),
    ("MFU", "mfu", 100, " %"),
    ("samples/J", "samples_per_joule", 1, ""),
    ("samples/USD", "samples_per_dollar", 1, ""),
    ("peak memory", "peak_memory_bytes", 1 / measuring.MIB, " MiB"),
)


REFERENCE: measuring.Columns = (
    ("training", "training.items_per_second", 1, " samples/s"),
    ("training, slowest round", "training.slowest", 1, " samples/s"),
    ("inference", "inference.items_per_second", 1, " items/s"),
    ("inference, slowest round", "inference.slowest", 1, " items/s"),
    ("time to target, steps alone", "to_target.training_seconds", 1, " s"),
    ("epochs to target", "to_target.epochs", 1, ""),
    ("samples per joule", "telemetry.samples_per_joule", 1, ""),
    ("power, mean", "telemetry.power_mean_watts", 1, " W"),
    ("memory, peak", "telemetry.memory_peak_bytes", 1 / measuring.MIB, " MiB"),
    (
        "accelerator memory, peak",
        "telemetry.accelerator_memory_peak_bytes",
        1 / measuring.MIB,
        " MiB",
    ),
    ("narrowest precision", "precision.lowest", 1, ""),
    ("work per step", "work.step_flops", 1 / measuring.GIGA, " GFLOP"),
    ("work per second", "roofline.achieved_flops", 1 / measuring.GIGA, " GFLOP/s"),
    ("utilisation (MFU)", "roofline.utilisation", 100, " %"),
    ("arithmetic intensity", "roofline.intensity", 1, " FLOP/byte"),
    ("bound by", "roofline.bound", 1, ""),
)


def reference_table(result: measuring.Result) -> FittingTable:
    table = make_table("measure", "figure", "note", right=("figure",))
    for name, path, scale, unit in REFERENCE:
        table.add_row(
            name, measuring.figure_text(measuring.field_of(result, path), unit, scale), ""
        )
    _add_peaks(table, result["roofs"])
    return table


def _add_peaks(table: FittingTable, peaks: Mapping[str, Any]) -> None:
    for name, figure in peaks.items():
        value = measuring.figure_text(figure["value"], f" {figure['unit']}")
        table.add_row(name.replace("_", " "), value, figure["how"])
