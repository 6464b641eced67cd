"""Results of `finishline bench` in tables."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from finishline.cli.tables import ABSENT, FittingTable, make_table

MIB, GIGA = 2**20, 1e9
Row = tuple[str, str, str]


def bench_table(result: Mapping[str, Any]) -> FittingTable:
    table = make_table("measure", "figure", "note", right=("figure",))
    measured = (*_throughput(result), *_beside(result)) if "benchmark" in result else ()
    for row in (*measured, *_roofs(result)):
        table.add_row(*row)
    return table


def _throughput(result: Mapping[str, Any]) -> Iterator[Row]:
    for name, items in (("training", "samples"), ("inference", "items")):
        found = result[name]
        low, high = found["slowest"], found["fastest"]
        how = f"batches of {found['items_per_call']}; rounds from {low:.4g} to {high:.4g}"
        yield name, f"{found['items_per_second']:.4g} {items}/s", how
    target = result.get("to_target")
    if target is None:
        yield "time to target", ABSENT, "no reference runs at this batch size"
        return
    how = f"{target['epochs']:.2f} epochs of {target['epoch_seconds']:.4g} s, steps alone"
    yield "time to target", f"{target['training_seconds']:.4g} s", how


def _beside(result: Mapping[str, Any]) -> Iterator[Row]:
    sensors = result["telemetry"]
    joules = sensors["samples_per_joule"]
    source = sensors["energy_source"] or "no energy counter can be read"
    yield "samples per joule", ABSENT if joules is None else f"{joules:.4g}", source
    watts = sensors["power_mean_watts"]
    yield "power, mean", ABSENT if watts is None else f"{watts:.4g} W", "of the accelerators"
    for name, what in (
        ("memory_peak_bytes", "memory, peak"),
        ("accelerator_memory_peak_bytes", "accelerator memory, peak"),
    ):
        peak = sensors[name]
        yield what, ABSENT if peak is None else f"{peak / MIB:.4g} MiB", "of the training process"
    yield from _work(result)


def _work(result: Mapping[str, Any]) -> Iterator[Row]:
    audit, work, point = result.get("precision"), result.get("work"), result.get("roofline")
    if audit is not None:
        yield "precision", audit["lowest"] or ABSENT, f"narrowest type used in {audit['scope']}"
    if work is not None:
        how = f"matmuls and convolutions of {work['batch_size']} samples"
        yield "work per step", f"{work['step_flops'] / GIGA:.4g} GFLOP", how
    if point is None:
        return
    mfu = point["utilisation"]
    how = f"{point['achieved_flops'] / GIGA:.4g} GFLOP/s of the best measured roof"
    yield "utilisation (MFU)", ABSENT if mfu is None else f"{100 * mfu:.3g} %", how
    if point["intensity"] is not None:
        bound = point["bound"]
        how = "no measured roof to compare with" if bound is None else f"bound by {bound}"
        yield "arithmetic intensity", f"{point['intensity']:.4g} FLOP/byte", how


def _roofs(result: Mapping[str, Any]) -> Iterator[Row]:
    for name, figure in result["roofs"].items():
        value = figure["value"]
        text = ABSENT if value is None else f"{value:.4g} {figure['unit']}"
        yield name.replace("_", " "), text, figure["how"]


def results_csv(result: Mapping[str, Any]) -> str:
    """A row for each result of a model, by the names of the JSON; absent figures are empty."""
    rows = []
    for one in result["results"]:
        row = {name: result[name] for name in ("model", "precision", "device")} | one
        seconds = row.pop("batch_seconds")
        rows.append(row | {f"batch_seconds_{name}": value for name, value in seconds.items()})
    written = io.StringIO()
    writer = csv.DictWriter(written, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def model_table(result: Mapping[str, Any]) -> FittingTable:
    names = ("samples/s", "batch, p50", "MFU", "samples/J", "samples/USD", "peak memory")
    table = make_table("phase", "batch", *names, right=("batch", *names))
    for one in result["results"]:
        table.add_row(
            one["phase"],
            str(one["batch_size"]),
            _figure(one["samples_per_second"]),
            _figure(one["batch_seconds"]["p50"], " s"),
            _figure(one["mfu"] and 100 * one["mfu"], " %"),
            _figure(one["samples_per_joule"]),
            _figure(one["samples_per_dollar"]),
            _figure(one["peak_memory_bytes"] and one["peak_memory_bytes"] / MIB, " MiB"),
        )
    return table


def model_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The model's size and work, in words."""
    flops = _figure(result["flops_per_sample"] and result["flops_per_sample"] / GIGA, " GFLOP")
    yield f"{result['parameters']:,} parameters; {flops} a sample forward; {result['precision']}"


def kernel_table(result: Mapping[str, Any]) -> FittingTable:
    names = ("p50", "mean", "n", "GFLOP/s", "GB/s")
    table = make_table("kernel", "pass", "precision", "shape", *names, right=names)
    for row in result["kernels"]:
        seconds = row["seconds"]
        shape = [f"{name} {n}" for name, n in row["shape"].items() if not isinstance(n, bool)]
        shape += [name for name, value in row["shape"].items() if value is True]
        table.add_row(
            row["kind"],
            row["pass"],
            row["precision"],
            ", ".join(shape),
            f"{seconds['p50']:.4g} s",
            f"{seconds['mean']:.4g} s",
            str(seconds["n"]),
            *(
                ABSENT if row[rate] is None else f"{row[rate] / GIGA:.4g}"
                for rate in ("flops_per_second", "bytes_per_second")
            ),
        )
    return table


def generation_table(result: Mapping[str, Any]) -> FittingTable:
    names = ("tokens/s", "requests/s", "TTFT p50", "TPOT p50", "latency p50", "latency p99")
    table = make_table("scenario", "batch", *names, right=("batch", *names))
    for one in result["generation"]["results"]:
        table.add_row(
            result["generation"]["scenario"],
            str(one["batch_size"]),
            f"{one['tokens_per_second']:.4g}",
            f"{one['requests_per_second']:.4g}",
            _figure((one["ttft_seconds"] or {}).get("p50"), " s"),
            _figure((one["tpot_seconds"] or {}).get("p50"), " s"),
            _figure((one["latency_seconds"] or {}).get("p50"), " s"),
            _figure((one["latency_seconds"] or {}).get("p99"), " s"),
        )
    return table


def generation_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The requests and the bound in words."""
    found = result["generation"]
    cache = "with" if found["kv_cache"] else "without"
    yield (
        f"{found['prompt_tokens']} tokens in, {found['output_tokens']} out, {cache} a cache of "
        f"keys and values; requests arrive {found['arrivals']}"
    )
    if found["p99_met"] is not None:
        word = "within" if found["p99_met"] else "beyond"
        yield f"99th percentile of the latency: {word} {found['p99_seconds']:g} s"


def _figure(value: float | None, unit: str = "") -> str:
    return ABSENT if value is None else f"{value:.4g}{unit}"


def points_table(result: Mapping[str, Any]) -> FittingTable:
    names = ("step_seconds", "samples_per_second", "speedup", "efficiency",
             "communication_share", "predicted_step_seconds")  # fmt: skip
    table = make_table("processes", "batch", *(name.replace("_", " ") for name in names))
    for point in result["points"]:
        figures = [ABSENT if point[name] is None else f"{point[name]:.4g}" for name in names]
        table.add_row(str(point["processes"]), str(point["batch_size"]), *figures)
    return table


def parts_table(result: Mapping[str, Any]) -> FittingTable:
    table = make_table("part", "milliseconds", right=("milliseconds",))
    for part, seconds in result["parts_seconds"].items():
        table.add_row(part, ABSENT if seconds is None else f"{1000 * seconds:.4g}")
    table.add_row("step", f"{1000 * result['step_seconds']:.4g}")
    table.add_row("bottleneck", str(result["bottleneck"]))
    return table
