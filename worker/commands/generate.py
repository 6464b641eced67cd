"""`finishline bench generate`: tokens per second and waiting times of a model that generates."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from finishline.cli.errors import UsageError
from finishline.cli.screen import Screen
from finishline.rules.errors import RuleError
from finishline.rules.scoring.latency import nearest_rank
from worker.commands import measuring

Scenario = Literal["single-stream", "offline", "server"]
ARRIVALS = {"single-stream": "one after the other", "offline": "all at once", "server": "poisson"}
GRAMMAR, GRAMMAR_TOKENS = "grammar", 64
LIMIT_SECONDS = 3600.0
COLUMNS: measuring.Columns = (
    ("tokens/s", "tokens_per_second", 1, ""),
    ("requests/s", "requests_per_second", 1, ""),
    ("TTFT p50", "ttft_seconds.p50", 1, " s"),
    ("TPOT p50", "tpot_seconds.p50", 1, " s"),
    ("latency p50", "latency_seconds.p50", 1, " s"),
    ("latency p99", "latency_seconds.p99", 1, " s"),
)


def generate(
    screen: Screen,
    target: Annotated[
        str, typer.Argument(metavar="grammar|SPEC", help="The benchmark grammar, or a model.")
    ],
    scenario: Annotated[
        Scenario, typer.Option(help="How requests arrive, as MLPerf names it.")
    ] = "offline",
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 32,
    output_tokens: Annotated[int, typer.Option(min=1, help="Tokens made for each.")] = 32,
    requests: Annotated[int, typer.Option(min=1, help="Requests in all.")] = 64,
    no_kv_cache: Annotated[
        bool, typer.Option("--no-kv-cache", help="Gives the whole text again for each token.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(
            min=measuring.LEAST, help="Requests per second that arrive at a server (Poisson)."
        ),
    ] = None,
    p99_seconds: Annotated[
        float | None,
        typer.Option(
            min=measuring.LEAST, help="Bound of the latency's 99th percentile, for p99_met."
        ),
    ] = None,
    precision: measuring.Precision = None,
    batch_sizes: measuring.BatchSizes = None,
    device: measuring.Device = None,
    threads: measuring.Threads = 1,
    out: measuring.Out = None,
) -> None:
    """Answer requests token by token: time to first token, time per token, tokens per second."""
    orders = measuring.begin(
        out,
        device=device,
        threads=threads,
        model=target,
        scenario=scenario,
        precision=precision or "fp32",
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        requests=requests,
        kv_cache=not no_kv_cache,
        rate=rate,
    )
    sizes = measuring.read_numbers(
        batch_sizes or ("1,8" if scenario == "offline" else "1"), "--batch-sizes"
    )
    check_orders(orders, sizes)
    results, longest = [], 0.0
    for size in sizes:
        screen.say(f"{scenario}, batches of {size} ...")
        found = measuring.ask(
            "worker.bench.requests", orders | {"batch_size": size}, LIMIT_SECONDS, what=target
        )
        results.append({"batch_size": size} | figures_of(found["requests"], output_tokens))
        waits = sorted(last - arrival for arrival, _, last in found["requests"])
        longest = max(longest, nearest_rank(waits, 99))
    absent = {}
    if rate is None:
        absent["generation.rate_per_second"] = "only a server has a rate of arrivals"
    if p99_seconds is None:
        why = "no bound was given with --p99-seconds"
        absent["generation.p99_met"] = absent["generation.p99_seconds"] = why
    if output_tokens == 1:
        absent["results.tpot_seconds"] = "one token has none before it"
    met = None if p99_seconds is None else longest <= p99_seconds
    result = {
        "model": target,
        "precision": orders["precision"],
        **measuring.describe_machine(orders),
        "absent": absent
        | measuring.why_absent(
            results, {}, fewest=requests, path="results", what="requests were made"
        ),
        "generation": {
            "scenario": scenario,
            "kv_cache": not no_kv_cache,
            "arrivals": ARRIVALS[scenario],
            "rate_per_second": rate,
            "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens,
            "requests_per_second": max(each["requests_per_second"] for each in results),
            "p99_seconds": p99_seconds,
            "p99_met": met,
            "results": results,
        },
    }
    cache = "without" if no_kv_cache else "with"
    lines = [
        f"{scenario}: {prompt_tokens} tokens in, {output_tokens} out, {cache} a cache of keys and "
        f"values; requests arrive {ARRIVALS[scenario]}"
    ]
    if met is not None:
        where = "within" if met else "beyond"
        lines.append(f"99th percentile of the latency: {where} {p99_seconds:g} s")
    measuring.tell(
        screen, result, [measuring.table_of(results, {"batch": "batch_size"}, COLUMNS), *lines], out
    )


def check_orders(orders: dict[str, Any], batch_sizes: Sequence[int]) -> None:
    """Raise RuleError or UsageError for a generation that cannot be measured."""
    model, scenario, rate = orders["model"], orders["scenario"], orders["rate"]
    if model != GRAMMAR and ":" not in model:
        raise UsageError(f"{model} generates nothing. Name grammar, or a model such as hf:roberta.")
    if model != GRAMMAR:
        measuring.check_spec(model, generates=True)
    measuring.check_precision(orders["precision"], orders["device"])
    tokens = orders["prompt_tokens"] + orders["output_tokens"]
    if model == GRAMMAR and tokens > GRAMMAR_TOKENS:
        raise RuleError(
            f"{tokens} tokens do not fit the context of grammar's model",
            field="output-tokens",
            expected=f"{GRAMMAR_TOKENS} or fewer with --prompt-tokens",
        )
    if (scenario == "server") != (rate is not None):
        expected = "requests per second above 0" if rate is None else "none"
        why = f"got {rate} for --scenario {scenario}"
        raise RuleError(why, field="rate", expected=expected)
    if scenario == "single-stream" and list(batch_sizes) != [1]:
        why = "single-stream has one request at a time"
        raise RuleError(why, field="batch-sizes", expected="1, or offline")


def figures_of(requests: Sequence[Sequence[float]], output_tokens: int) -> dict[str, Any]:
    """Compute the figures of one batch size from arrival, first and last token of each request."""
    seconds = max(last for _, _, last in requests)
    intervals = output_tokens - 1
    tpot = [(last - first) / intervals for _, first, last in requests] if intervals else None
    return {
        "ttft_seconds": measuring.distribution([first - arrival for arrival, first, _ in requests]),
        "tpot_seconds": None if tpot is None else measuring.distribution(tpot),
        "latency_seconds": measuring.distribution(
            [last - arrival for arrival, _, last in requests]
        ),
        "requests_per_second": len(requests) / seconds,
        "tokens_per_second": len(requests) * output_tokens / seconds,
    }
