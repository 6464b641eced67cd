"""Archives of results that were reviewed elsewhere, by their commits."""

import re
from dataclasses import dataclass

COMMIT = re.compile(r"[0-9a-f]{40}")
MLCOMMONS = "https://github.com/mlcommons"


@dataclass(frozen=True)
class Source:
    """A published archive. `benchmarks` fits the ids of the benchmarks that it has results of."""

    name: str
    url: str
    benchmarks: str
    commits: tuple[str, ...]


# The newest commit of each repository on 2026-11-23, and of v5.1 every one since its publication.
KNOWN_SOURCES = (
    Source(
        "DAWNBench",
        "https://github.com/stanford-futuredata/dawn-bench-entries",
        "cifar10|imagenet|squad",
        ("fb27b827bd83eff9021698ffe576b33a100e0b78",),
    ),
    Source(
        "MLPerf Training v0.5",
        f"{MLCOMMONS}/training_results_v0.5",
        r"mlperf-v0\.5-.+",
        ("c71f2e7c4b11ec7ab89eb4d8ceaadaae8529fff7",),
    ),
    Source(
        "MLPerf Training v4.0",
        f"{MLCOMMONS}/training_results_v4.0",
        r"mlperf-v4\.0-.+",
        ("6fe954378efe4a1a1bd665550b18ff8f26018def",),
    ),
    Source(
        "MLPerf Training v4.1",
        f"{MLCOMMONS}/training_results_v4.1",
        r"mlperf-v4\.1-.+",
        ("b87b9e396f771345d4ef122ba33456304f15228d",),
    ),
    Source(
        "MLPerf Training v5.0",
        f"{MLCOMMONS}/training_results_v5.0",
        r"mlperf-v5\.0-.+",
        ("0fdc28f013256aea84fa36fdaf1e0fa46094b18c",),
    ),
    Source(
        "MLPerf Training v5.1",
        f"{MLCOMMONS}/training_results_v5.1",
        r"mlperf-v5\.1-.+",
        (
            "441d65f4445cd59687466533fd9f55399136e7a4",
            "d879777747a5ba060a24d4a5ce48d0de61a99295",
            "504c3b501d78084755d99326bc5aa199e7535f81",
            "48843e562612738d6fd585faa3c1dac06bd11baf",
            "38ec542b2e5d0e670968bab2556c012079351426",
            "4da2d1cd71eb30c855dad12712480ae5ac90dd89",
        ),
    ),
)


def find_source(benchmark_id: str, commit: str | None) -> Source | None:
    """The known archive that has a commit and results of a benchmark; None where there is none."""
    for source in KNOWN_SOURCES:
        if commit in source.commits and re.fullmatch(source.benchmarks, benchmark_id):
            return source
    return None


def source_name(commit: str) -> str | None:
    """The name of the known archive that has a commit; None where there is none."""
    return next((source.name for source in KNOWN_SOURCES if commit in source.commits), None)
