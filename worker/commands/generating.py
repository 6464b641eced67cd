"""Tokens that a model makes for requests: options of the measurement, and its figures shown."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from finishline.cli.processes import python_module
from finishline.cli.tables import ABSENT, make_table

SWITCHES = ("--no-kv-cache",)


@dataclass(frozen=True)
class GenerationOptions:
    """Options of the measurement of a generating model, as the worker's command line takes them."""

    model: str
    chosen: Mapping[str, Any]

    def command(self) -> list[str]:
        """The command line of the worker's measurement."""
        given = [
            name if name in SWITCHES else f"{name}={value}" for name, value in self.chosen.items()
        ]
        return python_module("worker.generation_bench", *given, "--", self.model)


def generation_table(result: Mapping[str, Any]) -> Table:
    """One line for each batch size."""
    names = ("tokens/s", "requests/s", "TTFT p50", "TPOT p50", "latency p50", "latency p99")
    table = make_table("scenario", "batch", *names, right=("batch", *names))
    for one in result["generation"]["results"]:
        table.add_row(
            result["generation"]["scenario"],
            str(one["batch_size"]),
            f"{one['tokens_per_second']:.4g}",
            f"{one['requests_per_second']:.4g}",
            _seconds(one["ttft_seconds"], "p50"),
            _seconds(one["tpot_seconds"], "p50"),
            _seconds(one["latency_seconds"], "p50"),
            _seconds(one["latency_seconds"], "p99"),
        )
    return table


def generation_lines(result: Mapping[str, Any]) -> Iterator[str]:
    """The requests, the bound, and the reason for each absent figure."""
    found = result["generation"]
    cache = "with" if found["kv_cache"] else "without"
    yield (
        f"{found['prompt_tokens']} tokens in, {found['output_tokens']} out, {cache} a cache of "
        f"keys and values; requests arrive {found['arrivals']}"
    )
    if found["p99_met"] is not None:
        word = "within" if found["p99_met"] else "beyond"
        yield f"99th percentile of the latency: {word} {found['p99_seconds']:g} s"
    for name, why in result["absent"].items():
        yield f"{name}: absent, {why}"


def _seconds(figures: Mapping[str, Any] | None, name: str) -> str:
    value = None if figures is None else figures[name]
    return ABSENT if value is None else f"{value:.4g} s"
