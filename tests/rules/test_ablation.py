"""Ablation: variants of a package's factors, paired by seed and data."""

import math
from dataclasses import replace

import pytest
from scipy import stats

from finishline.rules.verification.entry import (
    factor_effects,
    judge_ablation,
    plan_ablation,
    why_no_ablation,
)
from finishline.rules.verification.job import Case, Request
from finishline.rules.verification.messages import ReplayReport
from tests.support.verdicts import CLAIM, WORKER, trained

ENTRY = replace(CLAIM, division="open", run_files=(), package="a" * 64, factors=("muon", "ema"))


def planned(benchmark, *, repeats=2, claim=ENTRY):
    wishes = {"repeats": repeats}
    return plan_ablation(Request(benchmark, bytes(range(32)), claims=[claim], wishes=wishes))


def case_of(benchmark, trainings, seconds):
    """A report of these seconds, None for a run that missed the target."""
    runs = [
        trained([(9.0, 10.0)], index=index, seed=training.seed, status="not_reached")
        if time is None
        else trained([(time, 98.0)], index=index, seed=training.seed)
        for index, (training, time) in enumerate(zip(trainings, seconds, strict=False))
    ]
    return Case(benchmark, trainings, ReplayReport(runs, WORKER), claim=ENTRY)


def off(training):
    return {name for name, value in training.settings.items() if value == 0.0}


def test_each_repeat_trains_all_on_each_off_and_all_off_on_one_seed_and_draw(digits):
    plan = planned(digits)

    forward = [set(), {"muon"}, {"ema"}, {"muon", "ema"}]
    assert [off(each) for each in plan] == forward + forward[::-1]
    for repeat in (plan[:4], plan[4:]):
        assert len({(each.seed, each.data_nonce) for each in repeat}) == 1
    assert plan[0].seed != plan[4].seed
    assert plan[0].data_nonce != plan[4].data_nonce
    assert {each.package for each in plan} == {"sha256:" + "a" * 64}


def test_one_factor_alone_is_trained_on_and_off(digits):
    plan = planned(digits, claim=replace(ENTRY, factors=("muon",)))

    assert [off(each) for each in plan] == [set(), {"muon"}, {"muon"}, set()]


def test_effect_is_the_paired_ratio_with_student_s_interval(digits):
    plan = planned(digits, repeats=3)
    whole, without = [2.0, 2.2, 1.9], [3.0, 3.1, 2.95]
    # In the order of the plan, which is turned in the second repeat.
    seconds = [
        *(whole[0], without[0], 2.0, 3.0),
        *(3.2, 2.2, without[1], whole[1]),
        *(whole[2], without[2], 1.9, 3.0),
    ]

    effects = factor_effects(digits, plan, case_of(digits, plan, seconds).report)

    logs = [math.log(b / a) for a, b in zip(whole, without, strict=True)]
    low, high = stats.t.interval(0.95, 2, loc=sum(logs) / 3, scale=stats.sem(logs))
    muon = next(each for each in effects if each.off == ("muon",))
    assert muon.time.ratio == pytest.approx(math.exp(sum(logs) / 3))
    assert (muon.time.low, muon.time.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert [each.off for each in effects] == [("muon",), ("ema",), ("muon", "ema")]


def test_a_factor_without_which_nothing_reaches_the_target_is_named_with_its_misses(digits):
    plan = planned(digits)
    seconds = [2.0, None, 2.5, None, None, 2.5, None, 2.0]

    verdict = judge_ablation(case_of(digits, plan, seconds))

    assert verdict.outcome == "verified"
    assert [reason.message for reason in verdict.reasons] == [
        "without muon, 2 of 2 runs missed the target",
        "without ema the target takes 1.25 times as long (95 % 1.25 to 1.25, 2 pairs)",
        "without all factors, 2 of 2 runs missed the target",
    ]


def test_one_pair_tells_no_interval_and_leaves_the_factor_open(digits):
    plan = planned(digits)
    seconds = [2.0, 3.0, 2.5, 3.0, 3.0, 2.5, None, 2.0]

    verdict = judge_ablation(case_of(digits, plan, seconds))

    assert verdict.outcome == "inconclusive"
    assert verdict.reasons[0].message == "without muon, 1 of 2 runs missed the target"


def test_a_report_that_ends_early_is_inconclusive(digits):
    plan = planned(digits)

    verdict = judge_ablation(case_of(digits, plan, [2.0, 3.0]))

    assert verdict.outcome == "inconclusive"
    assert "infrastructure" in [reason.code for reason in verdict.reasons]


def test_only_packages_that_name_factors_have_an_ablation(digits):
    assert why_no_ablation(digits, [ENTRY]) is None
    assert "names no [factors]" in str(why_no_ablation(digits, [replace(ENTRY, factors=())]))
    logged = replace(ENTRY, package=None, factors=())
    assert "log submission" in str(why_no_ablation(digits, [logged]))
