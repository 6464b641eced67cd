"""Boards with a budget: definitions, runs that end at it, and first place by quality."""

import math

import pytest
from scipy import stats

from finishline.rules.benchmarks.benchmark import parse_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.run import Evaluation, Run
from finishline.rules.scoring.scoring import score
from finishline.rules.statistics.aggregate import Spread
from finishline.rules.statistics.gaps import Score
from finishline.rules.statistics.paired import compare_pairs, compare_schedule
from finishline.rules.verification.head_to_head import (
    Pair,
    PairRun,
    head_to_head_sentence,
    judge_head_to_head,
)
from finishline.rules.verification.purposes import LATENCY as LATENCY_PURPOSE
from tests.rules.test_benchmark import GOOD, LATENCY
from tests.support.verdicts import CLAIM

BUDGET = '\n[ranking]\nby = "quality"\nbudget_seconds = 30\n'
PERCENT = Score("quality", "higher", 0.1)
LOSS = Score("quality", "lower", 0.001)


def toy(text=GOOD.replace('"dawnbench"', '"mlperf"'), ranking=BUDGET):
    return parse_benchmark((text + ranking).encode(), file="toy.toml")


@pytest.mark.parametrize(
    ("ranking", "field", "words"),
    [
        ('by = "quality"', "ranking.budget_seconds", "missing with by = 'quality'"),
        ("budget_seconds = 30", "ranking.budget_seconds", "30 with by = 'time'"),
        ('by = "quality"\nbudget_seconds = 0', "ranking.budget_seconds", "above 0"),
        ('by = "quality"\nbudget_seconds = -5', "ranking.budget_seconds", "above 0"),
        ('by = "quality"\nbudget_seconds = 61', "ranking.budget_seconds", "at most 60"),
        ('by = "speed"', "ranking.by", "quality"),
    ],
)
def test_definition_without_sense_is_refused(ranking, field, words):
    with pytest.raises(RuleError) as caught:
        toy(ranking=f"\n[ranking]\n{ranking}\n")

    (problem,) = caught.value.problems
    assert (problem.file, problem.field) == ("toy.toml", field)
    assert words in str(problem)


def test_no_latency_is_measured_here():
    benchmark = toy(GOOD.replace('"dawnbench"', '"mlperf"') + LATENCY)
    why = LATENCY_PURPOSE.why_not(benchmark, [CLAIM])

    assert why == "toy ranks by quality, and a latency is of a model at a target"


@pytest.mark.parametrize(
    ("before", "after", "quantum"),
    [
        ("", "", 2.0),  # One of fifty items, in percent.
        ('value = 90.0\nunit = "percent"', 'value = 0.9\nunit = "fraction"', 0.02),
        ('value = 90.0\nunit = "percent"', 'value = 3.0\nunit = "loss"', 0.06),
        ("test_items = 50", "", 90.0 / 1e6),
    ],
)
def test_one_item_is_the_least_spread(before, after, quantum):
    text = GOOD.replace('"dawnbench"', '"mlperf"').replace(before, after, 1)
    if "loss" in after:
        text = text.replace('direction = "higher"', 'direction = "lower"')
        text = text.replace("[50.0, 91.0]", "[9.0, 2.9]")
    if "fraction" in after:
        text = text.replace("[50.0, 91.0]", "[0.5, 0.91]")

    assert toy(text).score.quantum == pytest.approx(quantum)


def run_of(name, *curve):
    evaluations = [Evaluation(None, seconds, quality) for seconds, quality in curve]
    seed = int(name.strip("run_.log"))
    return Run(name, "mlperf", tuple(evaluations), seed=seed)


def test_the_last_evaluation_within_the_budget_counts():
    """90, 92 and 91 percent within 30 s. What came later, or was better before, does not count."""
    runs = [
        run_of("run_1.log", (10, 95.0), (30, 90.0), (31, 99.0)),
        run_of("run_2.log", (10, 80.0), (20, 92.0)),
        run_of("run_3.log", (29.9, 91.0), (45, 99.0)),
    ]
    result = score(runs, toy(), division="open", price_usd_per_hour=None)

    assert [run.best_quality for run in result.runs] == [90.0, 92.0, 91.0]
    assert [run.tta_seconds for run in result.runs] == [30, 20, 29.9]
    assert result.best_quality == pytest.approx(91.0)
    step = next(step for step in result.steps if step.name == "quality")
    assert step.formula == "The mean of all runs within 30 s"


def test_the_mean_ranks_and_a_miss_is_the_worst_run():
    assert PERCENT.measured([90.0, 92.0, 94.0]) == 92.0
    assert PERCENT.measured([90.0, None, 94.0]) == pytest.approx((90 + 90 + 94) / 3)
    assert LOSS.measured([3.0, None, 3.3]) == pytest.approx((3.0 + 3.3 + 3.3) / 3)
    assert PERCENT.measured([90.0, None, None]) is None
    assert PERCENT.measured([90.0, 91.0]) is None
    interval = PERCENT.interval(92.0, runs=5, spread=Spread(0.5, 12))
    half = stats.t.ppf(0.975, 12) * 0.5 / math.sqrt(5)
    assert (interval.low, interval.high) == pytest.approx((92 - half, 92 + half))


def pair_of(number, challenger, holder, score):
    sides = [
        PairRun(0, 1, "missed", None, None)
        if quality is None
        else PairRun(0, 1, "reached", 29.0, None, quality)
        for quality in (challenger, holder)
    ]
    return Pair(number, *sides, score)


def fight(*qualities, score=PERCENT):
    pairs = [pair_of(number, *both, score) for number, both in enumerate(qualities, start=1)]
    return judge_head_to_head(pairs)


def test_ten_pairs_of_qualities_worked_by_hand():
    """Mean 0.5, s 0.3162, t 5.00 with 9 degrees of freedom: p = 0.00037."""
    qualities = [(90.8, 90.0), (90.2, 90.0)] * 5
    found = fight(*qualities)

    assert (found.outcome, found.time) == ("challenger_faster", None)
    sides = list(zip(*qualities, strict=True))
    assert found.p_value == pytest.approx(stats.ttest_rel(*sides, alternative="greater").pvalue)
    assert found.quality.difference == pytest.approx(0.5)
    half = stats.t.ppf(0.975, 9) * 0.316228 / math.sqrt(10)
    assert (found.quality.low, found.quality.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert head_to_head_sentence(found).startswith("the challenger is better: ")
    assert [pair.winner for pair in found.pairs] == ["challenger"] * 10
    assert fight(*[(b, a) for a, b in qualities]).outcome == "not_proven"
    # Of a loss less is better.
    assert fight(*[(b / 10, a / 10) for a, b in qualities], score=LOSS).quality.difference < 0


def test_equal_steps_are_not_certain():
    """Every pair differs by half an item: the spread is one item, t = 1.58, p = 0.074."""
    found = fight(*[(90.05, 90.0)] * 10)

    assert found.outcome == "continues"
    assert found.p_value == pytest.approx(stats.t.sf(0.05 / (0.1 / math.sqrt(10)), 9))


def test_a_miss_gets_the_worst_quality_of_all():
    qualities = [(90.8, 90.0), (90.9, 89.5)] * 4 + [(90.8, None), (None, 90.0)]
    found = fight(*qualities)

    filled = [(89.5 if a is None else a, 89.5 if b is None else b) for a, b in qualities]
    sides = list(zip(*filled, strict=True))
    assert found.p_value == pytest.approx(stats.ttest_rel(*sides, alternative="greater").pvalue)
    assert [pair.winner for pair in found.pairs[-2:]] == ["challenger", "holder"]
    twice = fight(*[(None, 90.0)] * 2, *[(95.0, 90.0)] * 8)
    assert twice.why == "the challenger had no evaluation within the budget in 2 runs"


def test_two_programs_are_compared_by_their_qualities():
    """B has 0.9 and 0.7 more in turn: it is better after a few pairs."""
    pairs = [(90.0, 90.9), (90.1, 90.8)] * 5
    found = compare_pairs(pairs[:6], compare_schedule(10), PERCENT)

    assert found.faster == "b"
    assert found.gap.difference == pytest.approx(0.8)
    worse = compare_pairs([(b, a) for a, b in pairs[:6]], compare_schedule(10), PERCENT)
    assert (worse.faster, worse.pairs) == ("a", 6)
