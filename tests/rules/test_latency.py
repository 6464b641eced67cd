"""Latency of inference: percentiles, claimed entries, and verdicts on measured ones."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.errors import RuleError
from finishline.rules.logs.dawnbench import parse_entry
from finishline.rules.scoring.latency import latency_figures, median_lower_bound, score_inference
from finishline.rules.verification.job import Request
from finishline.rules.verification.latency import (
    check_latency,
    judge_latency,
    plan_latency,
    why_not_measurable,
)
from finishline.rules.verification.messages import Absence, BackendLatency, Failure, ReplayReport
from server.base.standing import run_limit_seconds
from server.verifications.views import measured_figures, why_absent
from tests.support.archive_folders import ENTRY
from tests.support.verdicts import CLAIM, LAPTOP, WORKER, trained


def some_times(count):
    drawn = random.Random(7)
    return [drawn.lognormvariate(0.0, 0.3) for _ in range(count)]


@pytest.mark.parametrize("count", [662, 1000, 1001])
def test_percentiles_are_numpys_inverted_distribution_function(count):
    times = some_times(count)
    found = latency_figures(times, warmup_items=0)

    expected = np.percentile(times, [50, 90, 99], method="inverted_cdf")
    assert [found.p50_ms, found.p90_ms, found.p99_ms] == pytest.approx(list(expected), rel=1e-12)
    assert found.mean_ms == pytest.approx(np.mean(times))


@pytest.mark.parametrize(
    ("count", "has_p90", "has_p99"),
    [(63, False, False), (64, True, False), (661, True, False), (662, True, True)],
)
def test_a_percentile_needs_its_samples(count, has_p90, has_p99):
    found = latency_figures([1.0] * count, warmup_items=0)

    assert (found.p90_ms is not None, found.p99_ms is not None) == (has_p90, has_p99)
    assert (why_absent(count, 90) is None, why_absent(count, 99) is None) == (has_p90, has_p99)
    assert why_absent(599, 99) == "not enough samples: 599 of 662"


def test_the_warm_up_is_dropped():
    found = latency_figures([900.0, 800.0, 2.0, 2.0, 4.0], warmup_items=2)

    assert (found.samples, found.mean_ms, found.p50_ms) == (3, pytest.approx(8 / 3), 2.0)
    assert found.items_per_second == pytest.approx(375.0)  # 3 items in 8 ms


@pytest.mark.parametrize(
    ("times", "warmup", "drift"),
    [
        ([99.0, 2.0, 2.0, 3.0, 3.0], 1, 50.0),
        ([4.0, 4.0, 3.0, 3.0], 0, -25.0),
        ([1.0, 2.0, 3.0, 4.0], 0, 200.0),  # the lower middle of either half: 1 and 3
        ([4.0, 5.0], 0, 25.0),
        ([4.0], 0, None),
    ],
)
def test_drift_is_the_second_half_against_the_first(times, warmup, drift):
    found = latency_figures(times, warmup_items=warmup).drift_percent
    assert found == (None if drift is None else pytest.approx(drift))


@pytest.mark.parametrize("times", [[1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, float("nan")]])
def test_no_item_after_the_warm_up_or_one_without_a_time_is_refused(times):
    with pytest.raises(RuleError, match="warm-up"):
        latency_figures(times, warmup_items=2)


@pytest.mark.parametrize("count", [10, 64, 599, 1100])
def test_the_bound_of_the_median_is_the_binomial_one(count):
    times = some_times(count)
    # Of the ranks k with P(fewer than k of n coins show heads) <= alpha the largest.
    rank = max(k for k in range(count + 1) if binom.cdf(k - 1, count, 0.5) <= 0.01)

    assert median_lower_bound(times, alpha=0.01) == sorted(times)[rank - 1]


def test_the_median_of_few_values_has_no_bound():
    assert median_lower_bound([1.0] * 6, alpha=0.01) is None  # 2 ** -6 is more than 0.01
    assert median_lower_bound([1.0] * 7, alpha=0.01) == 1.0


DIGITS = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "digits.toml")
ABSENT = BackendLatency("compiled", absence=Absence("compile_failed", "no compiler"))


def claim(*, hardware=LAPTOP.hardware_class, kind="inference", **others):
    system = replace(LAPTOP, hardware_class=hardware)
    return replace(CLAIM, run_files=(), kind=kind, system=system, **others)


def timed(backend, milliseconds, *, cpu_share=1.0):
    return BackendLatency(
        backend=backend,
        milliseconds=[50.0] * 30 + [milliseconds] * 1198,
        largest_difference=1e-6,
        seconds=2.0,
        cpu_seconds=2.0 * cpu_share,
    )


def slow(samples, *, seconds):
    """A backend that had fewer samples when its time was over."""
    times = [20.0] * (30 + samples)
    return replace(timed("eager", 20.0), milliseconds=times, seconds=seconds)


def report(*latency, quality=98.0, accelerators=0):
    status = "reached" if quality >= 97.5 else "not_reached"
    spans = {"parent_seconds": 60.0, "child_seconds": 60.0, "latency": list(latency)}
    run = trained([(1.0, quality)], status=status, **spans)
    return ReplayReport([run], replace(WORKER, accelerator_count=accelerators))


MEASURED = (timed("eager", 0.2), ABSENT, timed("onnxruntime", 0.1))


def eager(*milliseconds, warmup=1.0, **others):
    return replace(timed("eager", 0.2), milliseconds=[warmup] * 30 + [*milliseconds], **others)


STALLED = replace(MEASURED[2], milliseconds=[0.1, 9.0] * 15 + [0.1, 0.1, 9.0] * 200)
SHARED = timed("eager", 0.2, cpu_share=0.7)


@pytest.mark.parametrize(
    ("claimed", "on", "backends", "outcome", "code"),
    [
        (0.07, claim(), MEASURED, "verified", "latency_agrees"),
        (5.0, claim(), MEASURED, "verified", "latency_agrees"),
        # 0.1 ms is 1.499 times 0.0667 ms and 1.502 times 0.0666 ms. digits tolerates 1.5.
        (0.0667, claim(), MEASURED, "verified", "latency_agrees"),
        (0.0666, claim(), MEASURED, "rejected", "latency_slower_than_claimed"),
        # The model may be another.
        (0.01, claim(division="open"), MEASURED, "inconclusive", "latency_slower_than_claimed"),
        (0.01, claim(hardware="1x-t4"), MEASURED, "inconclusive", "hardware_differs"),
        # A few slow items do not speak against a claim.
        (0.1, claim(), [STALLED], "verified", "latency_agrees"),
        # A shared processor excuses a slow measurement, and drift does.
        (0.01, claim(), [SHARED], "inconclusive", "noisy_host"),
        (0.2, claim(), [SHARED], "verified", "latency_agrees"),
        (0.01, claim(), [eager(*[0.2] * 299, *[0.23] * 300)], "inconclusive", None),
        (0.01, claim(), [eager(*[0.2] * 299, *[0.221] * 300)], "inconclusive", None),
        (0.01, claim(), [eager(*[0.2] * 299, *[0.21] * 300)], "rejected", None),
        (0.01, claim(), [replace(SHARED, cpu_seconds=None)], "rejected", None),
        # Too few samples decide nothing.
        (0.2, claim(), [eager(*[0.2] * 63)], "inconclusive", "latency_not_compared"),
        (0.2, claim(), [eager(*[0.2] * 64)], "verified", "latency_agrees"),
        (None, claim(kind="train"), MEASURED, "inconclusive", "claim_has_no_latency"),
        (0.2, claim(), [], "inconclusive", "latency_not_measured"),
        (0.2, claim(), [ABSENT], "inconclusive", "latency_not_measured"),
    ],
)
def test_a_claim_is_held_against_the_fastest_backend(claimed, on, backends, outcome, code):
    verdict = judge_latency(DIGITS, on, claimed, report(*backends))

    assert verdict.outcome == outcome
    assert code in (None, verdict.reasons[-1].code)
    if code == "latency_not_measured":
        assert measured_figures(DIGITS, report(*backends)) is None


def test_a_reason_has_the_figures_of_the_backends():
    absent, agrees = judge_latency(DIGITS, claim(), 0.07, report(*MEASURED)).reasons
    assert absent.code == "backend_absent"
    assert "compiled was not measured (compile failed): no compiler" in absent.message
    assert "onnxruntime, the fastest backend, takes 1.43 times" in agrees.message
    slower = judge_latency(DIGITS, claim(), 0.01, report(*MEASURED)).reasons[-1]
    assert (slower.numbers["ratio"], slower.numbers["tolerated_ratio"]) == (pytest.approx(10), 1.5)
    untold = judge_latency(DIGITS, claim(kind="train"), None, report(*MEASURED)).reasons[-1]
    assert untold.numbers["measured_p50_ms"] == 0.1
    few = judge_latency(DIGITS, claim(), 0.2, report(eager(*[0.2] * 63))).reasons[-1]
    assert "63 of 64" in few.message


def test_a_shared_processor_excuses_no_accelerator():
    verdict = judge_latency(DIGITS, claim(), 0.01, report(SHARED, accelerators=1))
    assert (verdict.outcome, verdict.reasons[-1].code == "noisy_host") == ("rejected", False)


PLANNED = plan_latency(Request(DIGITS, bytes(32), claims=[claim()]))


def test_a_benchmark_without_a_protocol_measures_nothing():
    bare = replace(DIGITS, latency=None)

    assert measured_figures(bare, report(*MEASURED)) is None
    with pytest.raises(RuleError, match="no latency protocol"):
        judge_latency(bare, claim(), 0.2, report(*MEASURED))
    with pytest.raises(RuleError, match="no latency protocol"):
        check_latency(report(*MEASURED), bare)
    assert run_limit_seconds(bare, PLANNED) == 60
    assert run_limit_seconds(replace(DIGITS, replay=None), PLANNED) == 240


def test_a_model_below_the_target_has_no_latency():
    below = report(*MEASURED, quality=97.0)
    verdict = judge_latency(DIGITS, claim(), 0.2, below)

    assert (verdict.outcome, verdict.reasons[0].code) == ("inconclusive", "did_not_reach")
    assert measured_figures(DIGITS, below) is None


def test_a_run_that_failed_measured_nothing():
    run = report(*MEASURED).runs[0]
    failure = Failure("time_limit", "run_time_limit", "stopped after 300 s", "ask again")
    for runs, why in (
        ([replace(run, failure=failure, status="failed")], "stopped after 300 s"),
        ([], "no run"),
        ([replace(run, status="cancelled")], "no run"),
    ):
        verdict = judge_latency(DIGITS, claim(), 0.2, replace(report(), runs=runs))
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons[0].message == f"nothing was measured: {why}"


@pytest.mark.parametrize(
    "first", [MEASURED[0], *(slow(n, seconds=s) for n, s in ((120, 30.5), (700, 31.0), (1, 60.5)))]
)
def test_a_report_as_ordered_is_taken(first):
    """A slow model may have fewer times once its seconds are over."""
    check_latency(report(first, *MEASURED[1:]), DIGITS)


@pytest.mark.parametrize(
    ("broken", "field", "told"),
    [
        (MEASURED[:2], "", "each of eager, compiled, onnxruntime"),
        ((*MEASURED, timed("eager", 0.2)), "", "each of eager"),
        ((replace(MEASURED[0], milliseconds=[0.2] * 600), *MEASURED[1:]), ".eager", "1228 with"),
        ((timed("eager", 0.0), *MEASURED[1:]), ".eager", "not above 0"),
        ((timed("eager", float("inf")), *MEASURED[1:]), ".eager", "not above 0"),
        ((replace(MEASURED[0], largest_difference=2e-4), *MEASURED[1:]), ".eager", "most 0.0001"),
        ((replace(MEASURED[0], largest_difference=None), *MEASURED[1:]), ".eager", "most 0.0001"),
        ((replace(ABSENT, milliseconds=[1.0]), *MEASURED[::2]), ".compiled", "beside an absence"),
        ((timed("eager", 200.0), *MEASURED[1:]), "", "at most the run's 60.000 s"),
        ((timed("eager", 47.504), *MEASURED[1:]), "", "60.030 s of items"),
        *(
            ((slow(samples, seconds=seconds), *MEASURED[1:]), ".eager", "1228 with warm-up")
            for samples, seconds in ((120, 29.0), (119, 31.0), (0, 61.0), (1199, 61.0))
        ),
    ],
)
def test_a_report_that_is_not_as_ordered_is_refused(broken, field, told):
    with pytest.raises(RuleError) as refusal:
        check_latency(report(*broken), DIGITS)
    assert refusal.value.field == f"runs[0].latency{field}"
    assert told in str(refusal.value)


def test_a_run_that_failed_may_have_some_backends_and_none_twice():
    failed = replace(report(MEASURED[0]).runs[0], status="failed")
    check_latency(replace(report(), runs=[failed]), DIGITS)

    twice = replace(failed, latency=[MEASURED[0], MEASURED[0]])
    with pytest.raises(RuleError, match="each of eager"):
        check_latency(replace(report(), runs=[twice]), DIGITS)


def test_what_cannot_be_measured_says_why():
    entry = replace(claim(kind="train"), dawnbench={"model": "m"})
    unknown = replace(claim(kind="train"), hyperparameters={"layers": 3.0})

    assert "no reference model" in str(why_not_measurable(replace(DIGITS, replay=None), [claim()]))
    assert "no [latency]" in str(why_not_measurable(replace(DIGITS, latency=None), [claim()]))
    assert "has no hyperparameters" in str(why_not_measurable(DIGITS, [entry]))
    assert "no hyperparameter 'layers'" in str(why_not_measurable(DIGITS, [unknown]))
    assert why_not_measurable(DIGITS, [replace(claim(), dawnbench={"model": "m"})]) is None


def test_only_an_inference_entry_in_the_metric_of_the_benchmark_is_scored(cifar10):
    for entry in (ENTRY, ENTRY | {"latency": 2.5, "f1Score": 0.8}):
        read = parse_entry(json.dumps(entry).encode(), name="entry.json")
        with pytest.raises(RuleError) as caught:
            score_inference(read, cifar10)
        assert caught.value.expected == "a latency and top1Accuracy"
