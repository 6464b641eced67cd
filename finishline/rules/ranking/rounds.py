"""Rounds of a board: where we train ourselves, results published elsewhere are numbered apart."""

from typing import Literal

from finishline.rules.benchmarks.benchmark import Benchmark

Round = Literal["open", "archive"]
ROUNDS: tuple[Round, ...] = ("open", "archive")


def rounds_of(benchmark: Benchmark) -> tuple[Round | None, ...]:
    """The rounds that a benchmark's rows are numbered in; one without a name on an archive's."""
    is_trained_here = benchmark.replay is not None or benchmark.trainings is not None
    return ROUNDS if is_trained_here else (None,)


def round_of(benchmark: Benchmark, evidence: str) -> Round | None:
    """The round that a row of this evidence is numbered in."""
    if rounds_of(benchmark) != ROUNDS:
        return None
    return "archive" if evidence == "published" else "open"
