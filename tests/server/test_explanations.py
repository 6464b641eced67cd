"""How a board is scored, in sentences."""

from dataclasses import replace

from finishline.rules.benchmarks.benchmark import Benchmark
from server.pages.board_context import explain_scoring


def test_a_replay_trains_own_seeds_and_sealed_runs(digits: Benchmark) -> None:
    told = explain_scoring(digits)
    assert "trains the reference with 2 seeds of the claim's own" in told
    assert "Then it trains 3 sealed runs whose seeds" in told  # min_runs and max_runs are 3.

    assert digits.replay is not None
    wider = replace(digits, replay=replace(digits.replay, max_runs=4))
    assert "Then it trains 3 to 4 sealed runs whose seeds" in explain_scoring(wider)


def test_a_benchmark_without_a_replay_speaks_of_none(digits: Benchmark) -> None:
    assert "sealed" not in explain_scoring(replace(digits, replay=None))
