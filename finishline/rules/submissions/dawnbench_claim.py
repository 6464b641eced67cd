"""The claim that a DAWNBench entry makes: it names no benchmark, so that is given beside it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import ClaimError
from finishline.rules.logs.dawnbench import METRICS, DawnbenchEntry, parse_entry
from finishline.rules.submissions.claim import (
    MAX_ORGANISATION_LENGTH,
    Claim,
    Kind,
    System,
    read_date,
    read_json_object,
)
from finishline.rules.text import did_you_mean


def is_dawnbench(claim_json: bytes, *, file: str) -> bool:
    """Whether a JSON is a DAWNBench entry: it names an author and no benchmark."""
    table = read_json_object(claim_json, file=file)
    return "benchmark" not in table and ("author" in table or table.get("version") == "v1.0")


def read_dawnbench(
    claim_json: bytes,
    log_names: Iterable[str],
    benchmarks: Mapping[str, Benchmark],
    *,
    file: str,
    benchmark_id: str | None,
    division: str | None,
    archive: bool,
) -> tuple[Claim, DawnbenchEntry]:
    """An entry and the claim it makes. Raises a RuleError naming file, field and the expected.

    An entry of inference is one that states a latency and comes without any log.
    """
    benchmark = _find_benchmark(benchmark_id, benchmarks, file=file)
    division = _check_division(division or "open", benchmark, file=file)
    names = tuple(log_names)
    kind = _kind(claim_json, names, file=file)
    entry = _parse(claim_json, kind, benchmark, file=file)
    claim = Claim(
        benchmark_id=benchmark.benchmark_id,
        division=division,
        model=entry.model,
        framework=entry.framework,
        system=System(
            name=entry.hardware,
            hardware_class=_slug(entry.hardware),
            processor=entry.hardware,
            price_usd_per_hour=entry.cost_usd_per_hour,
            price_source="stated in the entry" if entry.cost_usd_per_hour is not None else None,
        ),
        run_files=names,
        code_url=entry.code_url,
        notes=f"DAWNBench entry by {entry.author}, {entry.timestamp}",
        dawnbench=asdict(entry),
        organisation=entry.author[:MAX_ORGANISATION_LENGTH] or None if archive else None,
        submitted_on=read_date(entry.timestamp) if archive else None,
        kind=kind,
    )
    return claim, entry


def _find_benchmark(
    benchmark_id: str | None, benchmarks: Mapping[str, Benchmark], *, file: str
) -> Benchmark:
    if benchmark_id is not None and benchmark_id in benchmarks:
        return benchmarks[benchmark_id]
    raise ClaimError(
        "a DAWNBench entry names no benchmark"
        if benchmark_id is None
        else f"unknown benchmark {benchmark_id[:80]!r}{did_you_mean(benchmark_id, benchmarks)}",
        file=file,
        field="benchmark",
        expected=" or ".join(sorted(benchmarks)) + ", given beside the entry",
    )


def _check_division(division: str, benchmark: Benchmark, *, file: str) -> str:
    if division in benchmark.divisions:
        return division
    raise ClaimError(
        f"unknown division {division[:80]!r}",
        file=file,
        field="division",
        expected=" or ".join(benchmark.divisions),
    )


def _kind(claim_json: bytes, log_names: tuple[str, ...], *, file: str) -> Kind:
    if log_names:
        return "train"
    if "latency" in read_json_object(claim_json, file=file):
        return "inference"
    raise ClaimError(
        "no run logs",
        file=file,
        field="runs",
        expected="one log file for each run; only an inference entry, with a latency, has none",
    )


def _parse(claim_json: bytes, kind: Kind, benchmark: Benchmark, *, file: str) -> DawnbenchEntry:
    if kind == "train":
        return parse_entry(claim_json, name=file, kind=kind)
    metric = benchmark.target.metric
    if metric not in METRICS:
        raise ClaimError(
            f"{benchmark.benchmark_id} is measured in {metric}, which no DAWNBench entry states",
            file=file,
            field="benchmark",
            expected="a benchmark measured in " + ", ".join(METRICS),
        )
    return parse_entry(claim_json, name=file, kind=kind, metric=metric)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80] or "unknown"
