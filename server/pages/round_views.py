"""Benchmarks by round: our own submissions, and those that an archive published."""

from typing import Any

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import Round
from server.benchmarks.definitions import rounds_of
from server.benchmarks.views import Counts, benchmark_view


def round_views(benchmark: Benchmark, counts: Counts) -> list[dict[str, Any]]:
    """A benchmark once for each `round` of its board, with the submissions of that round alone.

    That of an archive is left out where nothing was published.
    """
    return [
        view_in_round(benchmark, counts, name)
        for name in rounds_of(benchmark)
        if name != "archive" or counts.published
    ]


def view_in_round(benchmark: Benchmark, counts: Counts, name: Round | None) -> dict[str, Any]:
    """A benchmark with the submissions of one round of its board."""
    view = benchmark_view(benchmark, counts).model_dump(mode="json") | {"round": name}
    if name is None:
        return view
    published = sum(counts.published.values())
    inference = sum(n for (kind, _), n in counts.published.items() if kind == "inference")
    if name == "open":
        published, inference = view["submissions"] - published, counts.inference - inference
    return view | {"submissions": published, "inference_submissions": inference}
