"""Tokens per second and waiting times of a model, each batch size in a process of its own.

The model is a SPEC's, or the reference of the benchmark `grammar`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from finishline.rules.errors import RuleError
from finishline.rules.scoring.latency import FEWEST_SAMPLES, nearest_rank
from worker.bench.model import check_precision, check_spec
from worker.bench.runs import Say, describe_machine, distribution, require
from worker.child_process import Measure

SCENARIOS = {"single-stream": "one after the other", "offline": "all at once", "server": "poisson"}
GRAMMAR, GRAMMAR_TOKENS = "grammar", 64
LIMIT_SECONDS = 3600.0


@dataclass(frozen=True)
class GenerationBench:
    """A model, and the requests to it: `rate` arrive in a second, `p99_seconds` is a bound.

    Raises RuleError for what cannot be measured.
    """

    model: str
    scenario: str
    device: str
    precision: str = "fp32"
    batch_sizes: Sequence[int] = ()
    prompt_tokens: int = 32
    output_tokens: int = 32
    requests: int = 64
    kv_cache: bool = True
    rate: float | None = None
    p99_seconds: float | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if self.model != GRAMMAR:
            check_spec(self.model, generates=True)
        check_precision(self.precision, self.device)
        if self.model == GRAMMAR and self.prompt_tokens + self.output_tokens > GRAMMAR_TOKENS:
            raise RuleError(
                f"{self.prompt_tokens} and {self.output_tokens} tokens do not fit the context of "
                "grammar's model",
                field="output-tokens",
                expected=f"{GRAMMAR_TOKENS} or fewer with --prompt-tokens",
            )
        if (self.scenario == "server") != (self.rate is not None):
            expected = "none" if self.rate is not None else "requests per second above 0"
            raise RuleError(
                f"got {self.rate} for --scenario {self.scenario}", field="rate", expected=expected
            )
        if self.scenario == "single-stream" and tuple(self.batch_sizes or (1,)) != (1,):
            raise RuleError(
                "single-stream has one request at a time",
                field="batch-sizes",
                expected="1, or offline",
            )


def run_generation(asked: GenerationBench, measure: Measure, say: Say) -> dict[str, Any]:
    """Every batch size in turn. Raises BenchError where the model cannot be run."""
    results, latencies = [], []
    usual = (1, 8) if asked.scenario == "offline" else (1,)
    for batch_size in asked.batch_sizes or usual:
        say(f"{asked.scenario}, batches of {batch_size}")
        orders = asdict(asked) | {"batch_size": batch_size}
        found = require(measure("worker.bench.requests", orders, LIMIT_SECONDS), asked.model)
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
