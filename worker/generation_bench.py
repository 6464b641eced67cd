"""Tokens per second and waiting times of a model: `python -m worker.generation_bench SPEC ...`.

SPEC is a model's, or `grammar` for that benchmark's reference. Each batch size is measured in a
process of its own. Writes events as worker.bench does.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from finishline.devices import choose_device
from finishline.rules.errors import RuleError
from finishline.rules.scoring.latency import FEWEST_SAMPLES, nearest_rank
from worker.bench import describe_machine, require, tell_result
from worker.json_events import tell
from worker.latency import distribution
from worker.model_bench import check_precision, check_spec, read_batch_sizes
from worker.processes import Measure, measure_apart

SCENARIOS = {"single-stream": "one after the other", "offline": "all at once", "server": "poisson"}
GRAMMAR, GRAMMAR_TOKENS = "grammar", 64
LIMIT_SECONDS = 3600.0


@dataclass(frozen=True)
class GenerationBench:
    """Options of the command line; `rate` is of requests per second, `p99_seconds` a bound."""

    model: str
    precision: str
    scenario: str
    batch_sizes: tuple[int, ...]
    prompt_tokens: int
    output_tokens: int
    requests: int
    kv_cache: bool
    rate: float | None
    p99_seconds: float | None
    device: str
    threads: int


def run_generation(asked: GenerationBench, measure: Measure) -> dict[str, Any]:
    """Every batch size in turn. Raises BenchError where the model cannot be run."""
    results, latencies = [], []
    for batch_size in asked.batch_sizes:
        tell("doing", doing=f"{asked.scenario}, batches of {batch_size}")
        orders = asdict(asked) | {"batch_size": batch_size}
        found = require(measure("worker.generation", orders, LIMIT_SECONDS), asked.model)
        results.append({"batch_size": batch_size} | figures_of(found["requests"], asked))
        latencies.append([last - arrival for arrival, _, last in found["requests"]])
    met = None
    if asked.p99_seconds is not None:
        met = all(nearest_rank(sorted(each), 99) <= asked.p99_seconds for each in latencies)
    return {
        "model": asked.model,
        "precision": asked.precision,
        **describe_machine(asked.device, threads=asked.threads),
        "absent": why_figures_are_absent(asked, results),
        "generation": {
            "scenario": asked.scenario,
            "kv_cache": asked.kv_cache,
            "arrivals": SCENARIOS[asked.scenario],
            "rate_per_second": asked.rate,
            "prompt_tokens": asked.prompt_tokens,
            "output_tokens": asked.output_tokens,
            "requests_per_second": max(result["requests_per_second"] for result in results),
            "p99_seconds": asked.p99_seconds,
            "p99_met": met,
            "results": results,
        },
    }


def figures_of(
    requests: Sequence[tuple[float, float, float]], asked: GenerationBench
) -> dict[str, Any]:
    """The figures of one batch size from arrival, first and last token of each request.

    Rates are by the seconds from the start to the last token of all.
    """
    seconds = max(last for _, _, last in requests)
    intervals = asked.output_tokens - 1
    tpot = [(last - first) / intervals for _, first, last in requests] if intervals else None
    return {
        "ttft_seconds": distribution([first - arrival for arrival, first, _ in requests]),
        "tpot_seconds": None if tpot is None else distribution(tpot),
        "latency_seconds": distribution([last - arrival for arrival, _, last in requests]),
        "requests_per_second": len(requests) / seconds,
        "tokens_per_second": len(requests) * asked.output_tokens / seconds,
    }


def why_figures_are_absent(
    asked: GenerationBench, results: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """The reason for each figure that is absent, by name."""
    absent = {}
    if asked.rate is None:
        absent["generation.rate_per_second"] = "only a server has a rate of arrivals"
    if asked.p99_seconds is None:
        absent["generation.p99_met"] = absent["generation.p99_seconds"] = (
            "no bound was given with --p99-seconds"
        )
    if any(result["tpot_seconds"] is None for result in results):
        absent["results.tpot_seconds"] = "one token has none before it"
    for percent, least in FEWEST_SAMPLES.items():
        if asked.requests < least:
            absent[f"results.p{percent}"] = f"fewer than {least} requests were made"
    return absent


def read_arguments(arguments: Sequence[str] | None = None) -> GenerationBench:
    """The command line, checked before torch is loaded. Raises RuleError."""
    parser = argparse.ArgumentParser(prog="python -m worker.generation_bench")
    parser.add_argument("model")
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--batch-sizes")
    parser.add_argument("--prompt-tokens", type=int, default=32)
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--no-kv-cache", dest="kv_cache", action="store_false")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--p99-seconds", type=float)
    parser.add_argument("--device")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    if given.scenario not in SCENARIOS:
        raise RuleError(
            f"{given.scenario!r} is no scenario", field="scenario", expected=" or ".join(SCENARIOS)
        )
    if given.model != GRAMMAR:
        check_spec(given.model, generates=True)
    device = choose_device(given.device)
    check_precision(given.precision, device)
    for name in ("prompt_tokens", "output_tokens", "requests"):
        if getattr(given, name) < 1:
            raise RuleError(
                f"got {getattr(given, name)}", field=name.replace("_", "-"), expected="1 or more"
            )
    if given.model == GRAMMAR and given.prompt_tokens + given.output_tokens > GRAMMAR_TOKENS:
        raise RuleError(
            f"{given.prompt_tokens} and {given.output_tokens} tokens do not fit the context of "
            "grammar's model",
            field="output-tokens",
            expected=f"{GRAMMAR_TOKENS} or fewer with --prompt-tokens",
        )
    check_rate(given.scenario, given.rate)
    if given.p99_seconds is not None and not 0 < given.p99_seconds < float("inf"):
        raise RuleError(
            f"got {given.p99_seconds:g}", field="p99-seconds", expected="seconds above 0"
        )
    several = given.scenario == "offline"
    batch_sizes = read_batch_sizes(given.batch_sizes or ("1,8" if several else "1"))
    if given.scenario == "single-stream" and batch_sizes != (1,):
        raise RuleError(
            "single-stream has one request at a time", field="batch-sizes", expected="1, or offline"
        )
    return GenerationBench(
        **vars(given)
        | {"batch_sizes": batch_sizes, "device": device, "threads": max(1, given.threads)}
    )


def check_rate(scenario: str, rate: float | None) -> None:
    """Raise RuleError unless a server, and nothing else, has a rate of arrivals."""
    if scenario != "server" and rate is not None:
        raise RuleError(f"{scenario} has no rate", field="rate", expected="--scenario server")
    if scenario == "server" and not (rate is not None and 0 < rate < float("inf")):
        raise RuleError(
            "none was given" if rate is None else f"got {rate:g}",
            field="rate",
            expected="requests per second above 0 for --scenario server",
        )


if __name__ == "__main__":
    sys.exit(tell_result(lambda: run_generation(read_arguments(), measure_apart)))
