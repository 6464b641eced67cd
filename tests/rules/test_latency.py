"""Latency of inference: percentiles, claimed entries, and verdicts on measured ones."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import ClaimError, RuleError
from finishline.rules.logs.dawnbench import parse_entry
from finishline.rules.scoring.inference import InferenceResult, score_inference
from finishline.rules.scoring.latency import (
    latency_cost_usd_per_10000,
    latency_figures,
    latency_result,
    median_lower_bound,
    why_absent,
)
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.submissions.submission import score_submission
from finishline.rules.verification.job import Request, build_job, run_limit_seconds
from finishline.rules.verification.latency import (
    check_latency,
    judge_latency,
    measured_figures,
    plan_latency,
    why_not_measurable,
)
from finishline.rules.verification.messages import (
    Absence,
    BackendLatency,
    Failure,
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)

TARGET = QualityTarget(metric="top1Accuracy", value=97.5, unit="percent", direction="higher")


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


def test_an_absent_percentile_says_how_many_samples_there_are():
    assert why_absent(599, 99) == "not enough samples: 599 of 662"


def test_the_warm_up_is_dropped():
    found = latency_figures([900.0, 800.0, 2.0, 2.0, 4.0], warmup_items=2)

    assert (found.samples, found.mean_ms, found.p50_ms) == (3, pytest.approx(8 / 3), 2.0)
    assert found.items_per_second == pytest.approx(375.0)  # 3 items in 8 ms


def test_drift_is_the_second_half_against_the_first():
    assert latency_figures([99.0, 2.0, 2.0, 3.0, 3.0], warmup_items=1).drift_percent == (
        pytest.approx(50.0)
    )
    assert latency_figures([4.0, 4.0, 3.0, 3.0], warmup_items=0).drift_percent == (
        pytest.approx(-25.0)
    )
    assert latency_figures([1.0, 2.0, 3.0, 4.0], warmup_items=0).drift_percent == (
        pytest.approx(200.0)  # the lower middle of either half: 1 and 3
    )
    assert latency_figures([4.0, 5.0], warmup_items=0).drift_percent == pytest.approx(25.0)
    assert latency_figures([4.0], warmup_items=0).drift_percent is None


def test_cost_is_that_of_ten_thousand_items_one_at_a_time():
    # 3.6 ms x 10,000 = 36 s, a hundredth of an hour.
    assert latency_cost_usd_per_10000(3.6, 2.0) == pytest.approx(0.02)
    assert latency_cost_usd_per_10000(3.6, None) is None


@pytest.mark.parametrize(("quality", "eligible"), [(97.5, True), (97.4, False)])
def test_only_a_model_at_the_target_is_eligible(quality, eligible):
    found = latency_result(
        [3.6] * 3, warmup_items=1, quality=quality, target=TARGET, price_usd_per_hour=2.0
    )

    assert (found.eligible, found.quality, found.figures.samples) == (eligible, quality, 2)
    assert found.cost_usd_per_10000 == pytest.approx(0.02)


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


SYSTEM = System(name="m", hardware_class="cpu-test", processor="p")


ABSENT = BackendLatency("compiled", absence=Absence("compile_failed", "no compiler"))


def claim(*, division="closed", kind="inference", hardware="cpu-test"):
    return Claim(
        benchmark_id="digits",
        division=division,
        model="m",
        framework="f",
        system=replace(SYSTEM, hardware_class=hardware),
        run_files=(),
        kind=kind,
    )


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
    run = ReplayRun(
        index=0,
        seed=1,
        status="reached" if quality >= 97.5 else "not_reached",
        evaluations=[ReplayEvaluation(1.0, 1152, 1.0, quality, {})],
        ledger={},
        tta_seconds=1.0,
        parent_seconds=60.0,
        child_seconds=60.0,
        latency=list(latency),
    )
    system = WorkerSystem("w", "cpu-test", "p", 2, 1.0, None, accelerators, 1, {})
    return ReplayReport(runs=[run], system=system)


MEASURED = (timed("eager", 0.2), ABSENT, timed("onnxruntime", 0.1))


def test_a_claim_within_the_tolerance_of_the_fastest_backend_is_verified():
    verdict = judge_latency(DIGITS, claim(), 0.07, report(*MEASURED))

    assert verdict.outcome == "verified"
    assert [reason.code for reason in verdict.reasons] == ["backend_absent", "latency_agrees"]
    assert "onnxruntime, the fastest backend, takes 1.43 times" in verdict.reasons[1].message
    assert "compiled was not measured (compile failed): no compiler" in verdict.reasons[0].message


def test_a_claim_slower_than_measured_stands():
    assert judge_latency(DIGITS, claim(), 5.0, report(*MEASURED)).outcome == "verified"


@pytest.mark.parametrize(("claimed", "outcome"), [(0.0667, "verified"), (0.0666, "rejected")])
def test_the_tolerance_is_that_of_the_benchmark(claimed, outcome):
    # 0.1 ms is 1.499 times 0.0667 ms and 1.502 times 0.0666 ms; digits tolerates 1.5.
    assert judge_latency(DIGITS, claim(), claimed, report(*MEASURED)).outcome == outcome


def test_a_claim_too_fast_is_left_open_where_the_model_may_be_another():
    closed = judge_latency(DIGITS, claim(), 0.01, report(*MEASURED))
    opened = judge_latency(DIGITS, claim(division="open"), 0.01, report(*MEASURED))

    assert (closed.outcome, opened.outcome) == ("rejected", "inconclusive")
    assert closed.reasons[-1].code == opened.reasons[-1].code == "latency_slower_than_claimed"
    assert closed.reasons[-1].numbers["ratio"] == pytest.approx(10.0)
    assert closed.reasons[-1].numbers["tolerated_ratio"] == 1.5


def test_a_few_slow_items_do_not_speak_against_a_claim():
    stalled = replace(MEASURED[2], milliseconds=[0.1, 9.0] * 15 + [0.1, 0.1, 9.0] * 200)

    assert judge_latency(DIGITS, claim(), 0.1, report(stalled)).outcome == "verified"


def test_another_hardware_class_decides_nothing():
    verdict = judge_latency(DIGITS, claim(hardware="1x-t4"), 0.01, report(*MEASURED))

    assert (verdict.outcome, verdict.reasons[-1].code) == ("inconclusive", "hardware_differs")


@pytest.mark.parametrize("accelerators", [0, 1])
def test_a_shared_processor_excuses_a_slow_measurement_and_no_accelerator(accelerators):
    shared = report(timed("eager", 0.2, cpu_share=0.7), accelerators=accelerators)
    verdict = judge_latency(DIGITS, claim(), 0.01, shared)

    expected = ("inconclusive", "noisy_host") if not accelerators else ("rejected", None)
    assert verdict.outcome == expected[0]
    assert (verdict.reasons[-1].code == "noisy_host") is (expected[1] is not None)
    fair = judge_latency(DIGITS, claim(), 0.2, shared)
    assert fair.outcome == "verified"


def test_a_latency_that_drifts_rejects_nobody():
    drifting = replace(timed("eager", 0.2), milliseconds=[1.0] * 30 + [0.2] * 299 + [0.23] * 300)
    steady = replace(timed("eager", 0.2), milliseconds=[1.0] * 30 + [0.2] * 299 + [0.21] * 300)

    assert judge_latency(DIGITS, claim(), 0.01, report(drifting)).outcome == "inconclusive"
    assert judge_latency(DIGITS, claim(), 0.01, report(steady)).outcome == "rejected"
    nearly = replace(timed("eager", 0.2), milliseconds=[1.0] * 30 + [0.2] * 299 + [0.221] * 300)
    assert judge_latency(DIGITS, claim(), 0.01, report(nearly)).outcome == "inconclusive"


def test_a_measurement_that_tells_no_processor_time_is_no_excuse():
    untold = replace(timed("eager", 0.2), cpu_seconds=None)

    assert judge_latency(DIGITS, claim(), 0.01, report(untold)).outcome == "rejected"


PLANNED = plan_latency(Request(DIGITS, bytes(32), claims=[claim()]))


def test_a_benchmark_without_a_protocol_measures_nothing():
    bare = replace(DIGITS, latency=None)

    assert measured_figures(bare, report(*MEASURED)) is None
    with pytest.raises(RuleError, match="no latency protocol"):
        judge_latency(bare, claim(), 0.2, report(*MEASURED))
    with pytest.raises(RuleError, match="no latency protocol"):
        check_latency(report(*MEASURED), bare)
    with pytest.raises(RuleError, match="no latency protocol"):
        build_job(
            bare,
            claim(),
            PLANNED,
            purpose="latency",
            attempt_id="a",
            verification_id="v",
            submission_id="s",
        )
    assert run_limit_seconds(bare, PLANNED) == 60
    assert run_limit_seconds(replace(DIGITS, replay=None), PLANNED) == 240


def test_too_few_samples_decide_nothing():
    few = replace(timed("eager", 0.2), milliseconds=[0.2] * (30 + 63))
    enough = replace(timed("eager", 0.2), milliseconds=[0.2] * (30 + 64))

    verdict = judge_latency(DIGITS, claim(), 0.2, report(few))
    assert (verdict.outcome, verdict.reasons[-1].code) == ("inconclusive", "latency_not_compared")
    assert "63 of 64" in verdict.reasons[-1].message
    assert judge_latency(DIGITS, claim(), 0.2, report(enough)).outcome == "verified"


def test_a_model_below_the_target_has_no_latency():
    below = report(*MEASURED, quality=97.0)
    verdict = judge_latency(DIGITS, claim(), 0.2, below)

    assert (verdict.outcome, verdict.reasons[0].code) == ("inconclusive", "did_not_reach")
    assert measured_figures(DIGITS, below) is None


def test_a_training_claims_no_latency():
    verdict = judge_latency(DIGITS, claim(kind="train"), None, report(*MEASURED))

    assert (verdict.outcome, verdict.reasons[-1].code) == ("inconclusive", "claim_has_no_latency")
    assert verdict.reasons[-1].numbers["measured_p50_ms"] == 0.1


@pytest.mark.parametrize("latency", [(), (ABSENT,)])
def test_without_a_backend_nothing_is_decided(latency):
    verdict = judge_latency(DIGITS, claim(), 0.2, report(*latency))

    assert (verdict.outcome, verdict.reasons[-1].code) == ("inconclusive", "latency_not_measured")
    assert measured_figures(DIGITS, report(*latency)) is None


def test_a_run_that_failed_measured_nothing():
    failure = Failure("time_limit", "run_time_limit", "stopped after 300 s", "ask again")
    failed = replace(report(*MEASURED).runs[0], failure=failure, status="failed")
    verdict = judge_latency(DIGITS, claim(), 0.2, replace(report(), runs=[failed]))

    assert verdict.outcome == "inconclusive"
    assert verdict.reasons[0].message == "nothing was measured: stopped after 300 s"
    cancelled = replace(report(*MEASURED).runs[0], status="cancelled")
    for runs in ([], [cancelled]):
        verdict = judge_latency(DIGITS, claim(), 0.2, replace(report(), runs=runs))
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons[0].message == "nothing was measured: no run"


def test_the_measured_figures_are_those_of_the_fastest_backend():
    figures = measured_figures(DIGITS, report(*MEASURED))

    assert figures is not None
    assert (figures.p50_ms, figures.samples, figures.p99_ms) == (0.1, 1198, 0.1)


def test_a_report_as_ordered_is_taken():
    check_latency(report(*MEASURED), DIGITS)


@pytest.mark.parametrize(("samples", "seconds"), [(120, 30.5), (700, 31.0), (1, 60.5)])
def test_a_slow_model_may_have_fewer_times_once_its_seconds_are_over(samples, seconds):
    check_latency(report(slow(samples, seconds=seconds), *MEASURED[1:]), DIGITS)


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (MEASURED[:2], "each of eager, compiled, onnxruntime"),
        ((*MEASURED, timed("eager", 0.2)), "each of eager"),
        ((replace(MEASURED[0], milliseconds=[0.2] * 600), *MEASURED[1:]), "1228 with warm-up"),
        ((timed("eager", 0.0), *MEASURED[1:]), "not above 0"),
        ((timed("eager", float("inf")), *MEASURED[1:]), "not above 0"),
        ((replace(MEASURED[0], largest_difference=2e-4), *MEASURED[1:]), "at most 0.0001"),
        ((replace(MEASURED[0], largest_difference=None), *MEASURED[1:]), "at most 0.0001"),
        ((replace(ABSENT, milliseconds=[1.0]), MEASURED[0], MEASURED[2]), "beside an absence"),
        ((timed("eager", 200.0), *MEASURED[1:]), "at most the run's 60.000 s"),
        ((timed("eager", 47.504), *MEASURED[1:]), "60.030 s of items"),
        ((slow(120, seconds=29.0), *MEASURED[1:]), "1228 with warm-up"),
        ((slow(119, seconds=31.0), *MEASURED[1:]), "1228 with warm-up"),
        ((slow(0, seconds=61.0), *MEASURED[1:]), "1228 with warm-up"),
        ((slow(1199, seconds=61.0), *MEASURED[1:]), "1228 with warm-up"),
    ],
)
def test_a_report_that_is_not_as_ordered_is_refused(broken, told):
    with pytest.raises(RuleError, match=r"latency") as refusal:
        check_latency(report(*broken), DIGITS)
    assert told in str(refusal.value)


def test_a_refused_report_names_the_backend_or_else_the_run():
    for broken, field in (
        ((timed("eager", 0.0), *MEASURED[1:]), "runs[0].latency.eager"),
        (MEASURED[:2], "runs[0].latency"),
    ):
        with pytest.raises(RuleError) as refusal:
            check_latency(report(*broken), DIGITS)
        assert refusal.value.field == field


def test_a_run_that_failed_may_have_some_backends_and_none_twice():
    failed = replace(report(MEASURED[0]).runs[0], status="failed")
    check_latency(replace(report(), runs=[failed]), DIGITS)

    twice = replace(failed, latency=[MEASURED[0], MEASURED[0]])
    with pytest.raises(RuleError, match="each of eager"):
        check_latency(replace(report(), runs=[twice]), DIGITS)


def test_one_training_is_drawn_and_the_job_says_how_to_time_its_model():
    planned = plan_latency(Request(DIGITS, bytes(32), claims=[claim()]))
    other = plan_latency(Request(DIGITS, bytes(31) + b"\1", claims=[claim()]))
    ids = {"attempt_id": "a", "verification_id": "v", "submission_id": "s"}
    job = build_job(DIGITS, claim(), planned, purpose="latency", **ids)

    assert (len(planned), planned[0].seed != other[0].seed) == (1, True)
    assert job.latency is not None
    assert (job.latency.items, job.latency.warmup_items) == (1000, 30)
    (training,) = job.trainings
    assert (training.stop_at, training.settings["batch_size"]) == ("target", 64)
    assert "latency" in training.measure
    assert job.control_points == []
    assert job.run_limit_seconds == run_limit_seconds(DIGITS, planned) == 60 + 240
    untimed = [replace(training, measure=("tta",)) for training in planned]
    replay = build_job(DIGITS, claim(kind="train"), untimed, **ids)
    assert (replay.latency, replay.run_limit_seconds) == (None, 60)


def test_what_cannot_be_measured_says_why():
    entry = replace(claim(kind="train"), dawnbench={"model": "m"})
    unknown = replace(claim(kind="train"), hyperparameters={"layers": 3.0})

    assert "no reference model" in str(why_not_measurable(replace(DIGITS, replay=None), claim()))
    assert "no [latency]" in str(why_not_measurable(replace(DIGITS, latency=None), claim()))
    assert "has no hyperparameters" in str(why_not_measurable(DIGITS, entry))
    assert "no hyperparameter 'layers'" in str(why_not_measurable(DIGITS, unknown))
    assert why_not_measurable(DIGITS, replace(claim(), dawnbench={"model": "m"})) is None


ENTRY: dict[str, Any] = {
    "version": "v1.0",
    "author": "Ada",
    "authorEmail": "ada@example.org",
    "framework": "any 1.0",
    "model": "small net",
    "hardware": "1 T4 / 16 GB",
    "timestamp": "2019-10-15",
    "latency": 2.5,
    "cost": 0.000004,
}


CURVE = b"epoch\thours\ttop1Accuracy\n1\t1.0\t94.5\n"


@pytest.fixture(scope="module")
def known(shipped_benchmarks):
    return shipped_benchmarks


@pytest.fixture
def score(known):
    """Scores the entry, changed as told; a field of None is left out."""

    def build(benchmark_id="cifar10", logs=None, **changes):
        entry = {name: value for name, value in (ENTRY | changes).items() if value is not None}
        content = json.dumps(entry).encode()
        return score_submission(
            content, logs or {}, known, file="entry.json", benchmark_id=benchmark_id
        )

    return build


def inference(scored):
    assert isinstance(scored.result, InferenceResult)
    return scored.result


def test_a_cost_is_of_one_item_and_shown_for_10_000(score):
    """Source: dawn-bench-entries README: the cost field is of one item, the board's of 10,000."""
    scored = score(top1Accuracy=94.5)

    assert inference(scored).latency_ms == 2.5
    assert inference(scored).cost_usd_per_10000 == pytest.approx(0.04)
    assert (scored.claim.kind, scored.runs, scored.scored_runs) == ("inference", (), [])


@pytest.mark.parametrize(
    ("quality", "eligible"), [(93.99, False), (94.0, True), (94.01, True), (100.0, True)]
)
def test_a_model_at_the_target_is_good_enough(score, quality, eligible):
    result = inference(score(top1Accuracy=quality))

    assert (result.quality, result.reached, result.eligible) == (quality, eligible, eligible)


def test_an_f1_score_in_percent_is_flagged_and_divided(score):
    """Source: one published SQuAD inference entry gives 82.52."""
    percent = inference(score("squad", f1Score=82.52))
    fraction = inference(score("squad", f1Score=0.8252))

    assert (percent.quality, percent.eligible) == (pytest.approx(0.8252), True)
    assert (percent.given_in_percent, fraction.given_in_percent) == (True, False)
    assert "divided by 100" in percent.steps[0].formula
    assert "as stated" in fraction.steps[0].formula


@pytest.mark.parametrize("changes", [{"cost": None}, {"cost": 0}])
def test_a_cost_of_nothing_is_not_an_absent_one(score, changes):
    assert inference(score(top1Accuracy=94.5, **changes)).cost_usd_per_10000 == changes["cost"]


def test_without_a_log_and_without_a_latency_it_is_no_entry_at_all(score):
    with pytest.raises(ClaimError, match="no run logs") as caught:
        score(latency=None, top1Accuracy=94.5)

    assert caught.value.field == "runs"
    assert "latency" in (caught.value.expected or "")


def test_with_a_log_it_is_a_training(score):
    scored = score(logs={"entry.tsv": CURVE})

    assert (scored.claim.kind, len(scored.runs)) == ("train", 1)
    assert [run.tta_seconds for _, run in scored.scored_runs] == [3600.0]


def test_a_benchmark_without_a_dawnbench_metric_takes_no_entry(score):
    with pytest.raises(ClaimError) as caught:
        score("mlperf-v0.5-gnmt", SacreBLEU=24.5)

    assert caught.value.field == "benchmark"


def test_only_an_inference_entry_in_the_metric_of_the_benchmark_is_scored(known):
    training = {name: value for name, value in ENTRY.items() if name != "latency"}
    for entry in (training, ENTRY | {"f1Score": 0.8}):
        read = parse_entry(json.dumps(entry).encode(), name="entry.json")
        with pytest.raises(RuleError) as caught:
            score_inference(read, known["cifar10"])
        assert caught.value.expected == "a latency and top1Accuracy"
