"""Checks of a claim and its logs at the door."""

import json
import time

import pytest

from finishline.rules.benchmarks.definition_tables import RunsRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.run import Evaluation, Ledger, Run
from finishline.rules.scoring.scoring import RunScore, score_run
from finishline.rules.scoring.violations import find_violations
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.submissions.claim_checks import (
    check_claim,
    check_figures,
    check_same_logs,
    check_times,
)
from finishline.rules.submissions.submission import score_submission
from tests.support.archive_folders import ENTRY

CURVE = [(1.0, 20.0), (2.0, 50.0), (3.0, 80.0), (4.0, 95.0)]


def run_of(name, curve, *, start=0.0):
    evaluations = (Evaluation(epoch, start + 10 * epoch, quality) for epoch, quality in curve)
    return Run(name, "mlperf", tuple(evaluations))


OTHER = [(epoch, quality + 1) for epoch, quality in CURVE]


@pytest.mark.parametrize(
    ("runs", "copies"),
    [
        # Each copy is told beside the first of its training.
        (
            [
                run_of("a", CURVE),
                run_of("b", OTHER),
                run_of("c", CURVE, start=7.0),
                run_of("d", OTHER),
                run_of("e", CURVE),
            ],
            {"c": "a", "d": "b", "e": "a"},
        ),
        # Logs that only end alike are of two trainings, and few evaluations prove nothing.
        ([run_of("a", CURVE), run_of("b", [(1.0, 20.5), *CURVE[1:]])], {}),
        ([run_of("a", CURVE[:3]), run_of("b", CURVE[:3])], {}),
    ],
)
def test_each_copy_is_told_beside_the_first_of_its_training(runs, copies):
    found = {each.file: each.message for each in check_same_logs(runs)}
    assert found == {
        file: f"every quality and time equals that of {first}" for file, first in copies.items()
    }


def claim_checks(benchmark, system, *runs):
    claim = Claim("cifar10", "closed", "m", "f", system, tuple(run.name for run in runs))
    return [(found.code, found.file) for found in check_claim(claim, runs, benchmark)]


def test_where_no_claim_tells_the_batch_size_all_logs_have_one(make_benchmark):
    runs = [
        Run(f"run_{i}.log", "mlperf", (), batch_size=size)
        for i, size in enumerate([None, 128, 128, 256])
    ]

    found = claim_checks(make_benchmark(), System("laptop", "cpu", "any"), *runs)

    assert found == [("batch_size_differs", "run_3.log")]


@pytest.mark.parametrize(
    ("logged", "codes"),
    [
        ({"accelerators_per_node": 8, "number_of_nodes": 2}, []),
        ({"accelerators_per_node": 16}, []),
        ({"number_of_nodes": 2}, []),
        ({"accelerators_per_node": 8}, ["accelerators_contradict_claim"]),
    ],
)
def test_log_has_the_claimed_accelerators(make_benchmark, logged, codes):
    system = System("my dgx of 2024", "16x-v100", "any", "V100", accelerator_count=16)
    run = Run("run_0.log", "mlperf", (), hyperparameters=logged)

    assert [code for code, _ in claim_checks(make_benchmark(), system, run)] == codes


def found_in(benchmark, quality=98.0, *, epoch=1.0, seconds=10.0):
    run = Run("run_0.log", "mlperf", (Evaluation(epoch, seconds, quality, line=17),))
    score = score_run(run, benchmark, division="closed", clock=benchmark.clock)
    found = [*check_figures(run, benchmark), *check_times([run], [score], benchmark)]
    return [(violation.code, violation.line) for violation in found]


@pytest.mark.parametrize("quality", [-0.1, 100.1, 1e308])
def test_a_percentage_lies_between_0_and_100(digits, quality):
    assert found_in(digits, quality) == [("impossible_quality", 17)]
    assert found_in(digits, 100.0) == found_in(digits, 0.0) == []


@pytest.mark.parametrize("quality", [1e308, -1e308, 5e-324])
def test_a_quality_without_bounds_is_a_number_that_can_be_measured(make_benchmark, quality):
    score = make_benchmark(target=QualityTarget("score", 0.2, "score", "lower"))

    assert found_in(score, quality) == [("impossible_quality", 17)]
    assert found_in(score, 0.6) == found_in(score, 0.0) == found_in(score, -40.0) == []


@pytest.mark.parametrize(
    ("unit", "value", "codes"),
    [
        ("nats/byte", 0.2, ["impossible_quality"]),
        ("loss", 0.2, ["impossible_quality"]),
        ("BLEU", 25.0, ["impossible_quality"]),
        ("loss", -1.5, []),  # A log-likelihood, say.
    ],
)
def test_unit_or_target_allows_negative_metrics(make_benchmark, unit, value, codes):
    benchmark = make_benchmark(target=QualityTarget("m", value, unit, "lower"))

    assert [code for code, _ in found_in(benchmark, -0.01)] == codes


def test_every_metric_of_a_target_is_held_to_its_unit(make_benchmark):
    mask = QualityTarget("mask AP", 0.339, "fraction", "higher", logged_as="SEGM")
    box = QualityTarget("box AP", 0.377, "fraction", "higher", logged_as="BBOX", also=(mask,))
    logged = (
        Evaluation(1.0, 5.0, 0.5, others=None, line=16),
        Evaluation(2.0, 10.0, 0.5, others={"SEGM": 1.1}, line=17),
    )

    (found,) = check_figures(Run("run_0.log", "mlperf", logged), make_benchmark(target=box))

    assert (found.message, found.line, found.field) == ("mask AP 1.1", 17, "mask AP")
    assert found.expected == "a fraction from 0 to 1"


def test_what_was_expected_is_said_in_the_words_of_the_log(digits, make_benchmark):
    loss = make_benchmark(target=QualityTarget("loss", 0.2, "nats/byte", "lower"))

    for clock, names in (("dawnbench", ("epoch", "hours")), ("mlperf", ("epoch_num", "time_ms"))):
        run = Run("run_0.log", clock, (Evaluation(1e300, 0.0, 1e308, line=17),))
        quality, epoch = check_figures(run, loss)
        (time,) = check_times([run], [RunScore("run_0.log", 1, True, 0.0, 1.0, 1.0, None)], digits)

        assert quality.expected == "0, or 1e-12 to 1e+06"
        assert (epoch.field, time.field) == names


def begun_at(start_ms):
    logged = (Evaluation(1.0, 10.0, 98.0, line=17),)
    return Run("run_0.log", "mlperf", logged, start_ms=start_ms, start_line=6)


@pytest.mark.parametrize(
    ("start_ms", "said"),
    [
        (1.79e12, None),
        (1.3e12, None),
        (1.79e9, "begins on 1970-01-21: are these seconds?"),
        (0.0, "begins on 1970-01-01"),
        (9.4e11, "begins on 1999-10-15"),
        (3.98e12, "begins on 2096-02-13"),
    ],
)
def test_log_begins_on_a_day_that_logs_have(digits, start_ms, said):
    found = check_figures(begun_at(start_ms), digits)

    assert [(each.code, each.line, each.field) for each in found] == (
        [("impossible_start", 6, "time_ms")] if said else []
    )
    assert all(said in each.message for each in found)
    assert all(each.message.endswith("?") == said.endswith("?") for each in found)


@pytest.mark.parametrize(("hours", "codes"), [(23, []), (25, ["impossible_start"])])
def test_log_begins_at_most_a_day_ahead(digits, hours, codes):
    run = begun_at(time.time() * 1000 + hours * 3_600_000)

    assert [each.code for each in check_figures(run, digits)] == codes


@pytest.mark.parametrize("epoch", [1e-300, 1e300])
def test_epochs_are_counted(digits, epoch):
    assert found_in(digits, epoch=epoch) == [("impossible_epoch", 17)]
    for possible in (None, 0.0, 1e-6, 1e9):
        assert found_in(digits, epoch=possible) == []


@pytest.mark.parametrize("seconds", [0.0, 5e-324, 0.0009])
def test_no_training_is_at_its_target_within_a_millisecond(digits, seconds):
    assert found_in(digits, seconds=seconds) == [("impossible_time", 17)]
    assert found_in(digits, seconds=0.001) == []
    assert found_in(digits, 20.0, seconds=seconds) == []  # Evaluated before it was trained.


@pytest.mark.parametrize("row", [f"1\t{0.0}\t95.0", f"1\t{5e-324}\t95.0"])
def test_a_submission_without_a_time_is_refused_and_an_archive_is_kept(cifar10, row):
    entry, logs = json.dumps(ENTRY).encode(), {"e.tsv": f"epoch\thours\ttop1Accuracy\n{row}\n"}
    told = {"benchmarks": {"cifar10": cifar10}, "benchmark_id": "cifar10"}
    sent = {name: text.encode() for name, text in logs.items()}

    with pytest.raises(RuleError) as caught:
        score_submission(entry, sent, **told)
    kept = score_submission(entry, sent, **told, archive=True)

    [problem] = caught.value.problems
    assert (problem.file, problem.line, problem.field) == ("e.tsv", 2, "hours")
    assert kept.result.eligible


@pytest.mark.parametrize(
    ("field", "value"), [("latency", 0), ("latency", 5e-324), ("latency", 1e308), ("cost", 1e308),
                         ("cost", 5e-324), ("costPerHour", 1e308)]
)  # fmt: skip
def test_an_entry_states_figures_that_can_be_reckoned_with(cifar10, field, value):
    stated = ENTRY | {"latency": 2.5, "top1Accuracy": 94.2, "cost": 0} | {field: value}
    told = {"benchmarks": {"cifar10": cifar10}, "benchmark_id": "cifar10"}

    with pytest.raises(RuleError) as caught:
        score_submission(json.dumps(stated).encode(), {}, **told)

    assert [problem.field for problem in caught.value.problems] == [field]


def run_at(epochs, *, seconds=None, samples=None, clock="mlperf"):
    times = seconds or [10.0 * j for j in range(1, len(epochs) + 1)]
    counts = samples or [None] * len(epochs)
    rows = enumerate(zip(epochs, times, counts, strict=True), 20)
    evaluations = (Evaluation(e, s, 90.0, n, line=line) for line, (e, s, n) in rows)
    return Run("run_0.log", clock, tuple(evaluations))


def found_in_log(run, benchmark):
    system = System("laptop", "cpu", "any")
    claim = Claim("cifar10", "closed", "m", "f", system, ("run_0.log",))
    return [(v.code, v.line) for v in check_claim(claim, [run], benchmark)]


def prepared(seconds, *, ledger, clock="mlperf"):
    evaluations = (Evaluation(1.0, 10.0, 94.0, ledger=ledger),)
    return Run("run_0.log", clock, evaluations, preparation_seconds=seconds)


def test_where_preparing_is_on_the_clock_a_log_tells_when_it_began(make_benchmark):
    counted, free = make_benchmark(clock="dawnbench"), make_benchmark(clock="mlperf")
    ledger = Ledger(train=10.0)

    assert found_in_log(prepared(None, ledger=ledger), counted) == [("preparation_missing", None)]
    assert found_in_log(prepared(0.0, ledger=ledger), counted) == []
    assert found_in_log(prepared(None, ledger=ledger), free) == []
    assert found_in_log(prepared(None, ledger=None, clock="dawnbench"), counted) == []


@pytest.mark.parametrize(
    ("epochs", "others", "found"),
    [
        ([1, 2, 3, 4, 5, 6], {"samples": [1152 * j for j in range(1, 7)]}, []),
        ([1, 1, 2, 2], {}, []),  # rounded epochs may repeat
        ([2, 3, 5, 6, 7, 8], {}, []),  # evaluations left out
        ([1, 2, None, 4, 5, 6], {}, []),  # an epoch that is not told
        # Small pictures at first, and one step without time.
        ([1, 2, 3, 4, 5, 6], {"seconds": [2.0, 4.0, 16.0, 28.0, 40.0, 52.0]}, []),
        ([1, 2, 3, 4, 5, 6], {"seconds": [10.0, 20.0, 20.0, 30.0, 40.0, 50.0]}, []),
        # A log that goes back is told once for each place.
        ([1, 2, 3, 2, 3, 4], {}, [("epochs_go_back", 23)]),
        ([None] * 4, {"samples": [100, 200, 150, 250]}, [("epochs_go_back", 22)]),
    ],
)
def test_uneven_log_is_taken_and_one_that_goes_back_is_told(digits, epochs, others, found):
    assert found_in_log(run_at(epochs, **others), digits) == found


def codes(runs, benchmark, *, division="closed"):
    return [v.code for v in find_violations(runs, benchmark, division=division)]


@pytest.mark.parametrize(
    ("seeds", "rule", "division", "broken"),
    [
        ([0, 1], RunsRule(3, 1), "closed", ["too_few_runs"]),
        ([0, 1, 2], RunsRule(3, 1), "closed", []),
        ([0, 1, 2, 3], RunsRule(3, 1), "closed", []),
        ([0, 0], RunsRule(2, 0), "closed", ["same_seed"]),
        # Source: MLPerf training_rules.adoc, "Random numbers". In open no seed is expected.
        ([7, 8, 7, 7], RunsRule(3, 0), "open", ["same_seed", "same_seed"]),
        ([0, None], RunsRule(2, 0), "closed", ["no_seed"]),
        ([0, None], RunsRule(2, 0), "open", []),
        ([0, None], RunsRule(1, 0), "closed", []),
        # Source: training_rules.adoc of v0.5, which has no word on logging seeds.
        ([None, None], RunsRule(2, 0, seeds="if_logged"), "closed", []),
        ([3, 3], RunsRule(2, 0, seeds="if_logged"), "closed", ["same_seed"]),
    ],
)
def test_a_set_has_its_number_of_runs_with_a_seed_each(
    make_benchmark, make_run, seeds, rule, division, broken
):
    runs = [
        make_run([94.0], name=f"{i}.log", seed=seed, status="success")
        for i, seed in enumerate(seeds)
    ]
    assert codes(runs, make_benchmark(runs=rule), division=division) == broken


def test_a_set_without_any_evaluation_names_every_log_and_what_was_expected(make_benchmark):
    runs = [Run(f"{i}.log", "dawnbench", (), seed=i) for i in range(2)]

    found = find_violations(runs, make_benchmark(count=2), division="closed")

    assert [(v.code, v.file) for v in found] == [
        ("no_evaluation", "0.log"),
        ("no_evaluation", "1.log"),
    ]
    assert found[0].expected == "an evaluation with top-1 accuracy >= 94 percent"


def stopped(make_run, finals):
    return [make_run([90.0, q], name=f"{i}.log", seed=i) for i, q in enumerate(finals)]


@pytest.mark.parametrize(
    ("finals", "broken"),
    [
        # One-sided t-test, p < 0.01. scipy.stats.ttest_1samp gives 0.0041 and 0.078.
        ([94.20, 94.10, 94.15, 94.30, 94.12], []),
        ([94.20, 93.95, 94.15, 94.30, 93.98], ["target_not_proven"]),
        # A mean below the target never passes, nor does a single run.
        ([10.0, 10.0], ["target_not_proven"]),
        ([99.0], ["target_not_proven"]),
    ],
)
def test_at_a_fixed_stop_the_mean_must_beat_the_target(make_benchmark, make_run, finals, broken):
    benchmark = make_benchmark(reach="fixed_stop", count=len(finals))
    assert codes(stopped(make_run, finals), benchmark) == broken


@pytest.mark.parametrize(
    ("last", "code", "message"),
    [([90.0, 91.0, 95.0], "different_stop", ""), ([], "target_not_proven", "a run without eval")],
)
def test_fixed_stop_is_one_epoch(make_benchmark, make_run, last, code, message):
    runs = [*stopped(make_run, [95.0, 95.1]), make_run(last, name="2.log", seed=2)]
    benchmark = make_benchmark(reach="fixed_stop", count=3)

    found = find_violations(runs, benchmark, division="closed")

    assert found[-1].code == code
    assert message in found[-1].message


def test_a_loss_below_the_entropy_of_the_data_is_told_with_its_run(make_benchmark, make_run):
    target = QualityTarget("loss", 0.8, "nats/byte", "lower", floor=0.54)
    benchmark = make_benchmark(target=target, count=2)
    honest = make_run([2.0, 0.7, 0.54], name="0.log", seed=0)
    made_up = make_run([2.0, 0.5, 0.4], name="1.log", seed=1)

    assert codes([honest, make_run([0.6], seed=3)], benchmark) == []
    (violation,) = find_violations([honest, made_up], benchmark, division="closed")
    assert (violation.code, violation.file) == ("below_entropy", "1.log")
    assert "0.5 at epoch 2" in violation.message
    assert "0.54" in violation.expected
