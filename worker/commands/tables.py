"""Results of `finishline bench` in tables."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from finishline.cli.tables import ABSENT, FittingTable, make_table

MIB, GIGA = 2**20, 1e9
Row = tuple[str, str, str]
Columns = tuple[tuple[str, str, float, str], ...]
"""Of each column of figures its heading, field, factor and unit."""


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
    """A row for each result of a model, by the names of the JSON. Absent figures are empty."""
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


MODEL: Columns = (
    ("samples/s", "samples_per_second", 1, ""),
    ("batch, p50", "batch_seconds.p50", 1, " s"),
    ("MFU", "mfu", 100, " %"),
    ("samples/J", "samples_per_joule", 1, ""),
    ("samples/USD", "samples_per_dollar", 1, ""),
    ("peak memory", "peak_memory_bytes", 1 / MIB, " MiB"),
)
KERNEL: Columns = (
    ("p50", "seconds.p50", 1, " s"),
    ("mean", "seconds.mean", 1, " s"),
    ("GFLOP/s", "flops_per_second", 1 / GIGA, ""),
    ("GB/s", "bytes_per_second", 1 / GIGA, ""),
)
GENERATION: Columns = (
    ("tokens/s", "tokens_per_second", 1, ""),
    ("requests/s", "requests_per_second", 1, ""),
    ("TTFT p50", "ttft_seconds.p50", 1, " s"),
    ("TPOT p50", "tpot_seconds.p50", 1, " s"),
    ("latency p50", "latency_seconds.p50", 1, " s"),
    ("latency p99", "latency_seconds.p99", 1, " s"),
)
POINTS: Columns = (
    ("step", "step_seconds", 1, " s"),
    ("samples/s", "samples_per_second", 1, ""),
    ("speedup", "speedup", 1, ""),
    ("efficiency", "efficiency", 1, ""),
    ("communication", "communication_share", 100, " %"),
    ("predicted step", "predicted_step_seconds", 1, " s"),
)


def _table(
    rows: Sequence[Mapping[str, Any]], words: Mapping[str, str], figures: Columns
) -> FittingTable:
    """A row for each result: words by their headings, then figures."""
    right = [heading for heading, *_ in figures]
    table = make_table(*words, *right, right=("batch", "n", *right))
    for row in rows:
        table.add_row(
            *(str(_field(row, path)) for path in words.values()),
            *(_figure(_field(row, path), unit, scale) for _, path, scale, unit in figures),
        )
    return table


def _field(row: Any, path: str) -> Any:
    for name in path.split("."):
        row = row and row[name]
    return row


def model_table(result: Mapping[str, Any]) -> FittingTable:
    return _table(result["results"], {"phase": "phase", "batch": "batch_size"}, MODEL)


def model_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The model's size and work, in words."""
    flops = _figure(result["flops_per_sample"], " GFLOP", 1 / GIGA)
    yield f"{result['parameters']:,} parameters; {flops} a sample forward; {result['precision']}"


def kernel_table(result: Mapping[str, Any]) -> FittingTable:
    names = ("pass", "precision", "shape")
    words = {"kernel": "kind", **{name: name for name in names}, "n": "seconds.n"}
    rows = [row | {"shape": _shape(row["shape"])} for row in result["kernels"]]
    return _table(rows, words, KERNEL)


def _shape(shape: Mapping[str, int | bool]) -> str:
    numbers = [f"{name} {n}" for name, n in shape.items() if not isinstance(n, bool)]
    return ", ".join([*numbers, *(name for name, value in shape.items() if value is True)])


def generation_table(result: Mapping[str, Any]) -> FittingTable:
    return _table(result["generation"]["results"], {"batch": "batch_size"}, GENERATION)


def generation_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The requests and the bound in words."""
    found = result["generation"]
    cache = "with" if found["kv_cache"] else "without"
    yield (
        f"{found['scenario']}: {found['prompt_tokens']} tokens in, {found['output_tokens']} out, "
        f"{cache} a cache of keys and values; requests arrive {found['arrivals']}"
    )
    if found["p99_met"] is not None:
        word = "within" if found["p99_met"] else "beyond"
        yield f"99th percentile of the latency: {word} {found['p99_seconds']:g} s"


def _figure(value: float | None, unit: str = "", scale: float = 1) -> str:
    return ABSENT if value is None else f"{value * scale:.4g}{unit}"


def points_table(result: Mapping[str, Any]) -> FittingTable:
    words = {"processes": "processes", "batch": "batch_size"}
    return _table(result["points"], words, POINTS)


def parts_table(result: Mapping[str, Any]) -> FittingTable:
    table = make_table("part", "milliseconds", right=("milliseconds",))
    for part, seconds in result["parts_seconds"].items():
        table.add_row(part, ABSENT if seconds is None else f"{1000 * seconds:.4g}")
    table.add_row("step", f"{1000 * result['step_seconds']:.4g}")
    table.add_row("bottleneck", str(result["bottleneck"]))
    return table
