"""A verdict as a whole: its reasons, and what no verdict can be made of."""

import dataclasses
from pathlib import Path
from typing import get_args

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark, RunsRule
from finishline.rules.errors import RuleError
from finishline.rules.verification.verdict import SHARES, ReasonCode
from tests.support.verdicts import (
    Judge,
    claimed,
    codes,
    replay,
)


def test_the_shares_of_alpha_are_those_of_the_documents() -> None:
    text = (Path(__file__).parents[3] / "docs" / "rules.md").read_text(encoding="utf-8")
    table = text.partition("| test | share | limit |")[2].partition("\n\n")[0]
    documented = [float(row.split("|")[2]) for row in table.splitlines()[2:]]

    assert list(dataclasses.astuple(SHARES)) == documented


def test_the_documents_explain_every_reason_of_a_verdict() -> None:
    text = (Path(__file__).parents[3] / "docs" / "rules.md").read_text(encoding="utf-8")
    codes = [code for code in get_args(ReasonCode) if not code.startswith("duel_")]

    assert [code for code in codes if f"`{code}`" not in text] == []


def test_an_honest_claim_is_verified_for_four_reasons(verdict: Judge) -> None:
    honest = verdict()

    assert honest.outcome == "verified"
    assert codes(honest) == [
        "reached_target",
        "within_band",
        "convergence_agrees",
        "time_agrees",
    ]
    assert {reason.weight for reason in honest.reasons} == {"supports"}
    assert honest.reasons[1].numbers == {"control_points": 24.0}
    assert honest.reasons[3].numbers["claimed_seconds"] == pytest.approx(0.88)


def test_a_run_that_did_not_converge_counts_as_the_slowest(verdict: Judge) -> None:
    assert verdict(claimed([7, 8, None])).outcome == "verified"


def test_one_run_where_none_is_dropped_is_judged_by_one_replay(
    verdict: Judge, digits: Benchmark, curve: list[float]
) -> None:
    """As DAWNBench counts: one run, nothing dropped. Its time takes two replays to compare."""
    single = dataclasses.replace(digits, runs=RunsRule(count=1, dropped=0))
    runs = [replay(i, curve[:8], slowness=1 + i / 20) for i in range(2)]

    alone = verdict(claimed([8]), runs[:1], benchmark=single)
    twice = verdict(claimed([8]), runs, benchmark=single)

    assert codes(alone) == [
        "reached_target",
        "within_band",
        "convergence_agrees",
        "time_not_compared",
    ]
    assert alone.outcome == twice.outcome == "verified"
    assert "time_agrees" in codes(twice)


@pytest.mark.parametrize("epochs", [[None, None, None], [7, None, None], [7, 8], []])
def test_a_claim_that_has_no_result_is_never_verified(
    verdict: Judge, epochs: list[float | None]
) -> None:
    assert verdict(claimed(epochs)).outcome == "inconclusive"


def test_more_runs_than_needed_are_judged_by_those_that_count(verdict: Judge) -> None:
    """Three in a row count, by their median window: 8, 8, 8 here and 4, 4, 4 there."""
    assert verdict(claimed([8, 8, 8, 4, 4])).outcome == "verified"
    assert verdict(claimed([4, 4, 4, 8, 4])).outcome == "rejected"


def test_a_benchmark_without_a_replay_is_not_judged(verdict: Judge, cifar10: Benchmark) -> None:
    with pytest.raises(RuleError, match="no replay policy"):
        verdict(benchmark=dataclasses.replace(cifar10, replay=None))
