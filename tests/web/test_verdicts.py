"""Verdicts, measurements, steps of a score and settings in words."""

import pytest

from web.run_measurements import (
    Setting,
    measured_columns,
    stated_settings,
)
from web.steps import addends_over_count, convergence_unit, run_uses, shown_steps
from web.verdicts import (
    reads_between_evaluations,
    verdict_checks,
)


def test_epochs_between_evaluations_are_marked():
    """7, 8 and 7 whole epochs, whose curves cross the target after 6.89 on average."""
    whole = {"result": {"epochs_to_target": 7.3333}}

    def judged(epochs):
        numbers = {"claimed_mean_epochs": epochs}
        return {"reasons": [{"code": "convergence_agrees", "numbers": numbers}, {"numbers": {}}]}

    assert reads_between_evaluations(judged(6.8903), whole)
    assert not reads_between_evaluations(judged(7.3331), whole)
    assert not reads_between_evaluations(judged(6.8903), {"result": {"epochs_to_target": None}})
    assert not reads_between_evaluations({"reasons": []}, whole)


def replay(*reasons):
    return {"kind": "replay", "outcome": "verified", "reasons": list(reasons)}


def reason(code, weight, message="said", **numbers):
    return {"code": code, "weight": weight, "message": message, "numbers": numbers}


def test_checks_have_one_order():
    checks = verdict_checks(replay(reason("reached_target", "supports", "3 of 3 replays reached")))

    assert [check.name for check in checks] == [
        "Reached the target", "Learned like the reference", "Same number of epochs", "Same speed",
    ]  # fmt: skip
    assert [check.word for check in checks] == ["yes", *["not compared"] * 3]
    assert verdict_checks({"kind": "latency", "outcome": "verified", "reasons": []}) == []


def test_heaviest_reason_speaks_for_its_check():
    untimed = reason("worker_drifted", "note", "time was not compared: the worker was slow")
    slow = reason("slower_than_claimed", "rejects", ratio=2.0, tolerated_ratio=1.5)
    assert verdict_checks(replay(untimed, slow))[3].word == "no"
    assert verdict_checks(replay(untimed))[3].text == "Not compared: the worker was slow."
    assert verdict_checks(replay(untimed))[3].word == "not compared"


def verification(*runs, utilisation):
    reported = [{"index": index, "telemetry": telemetry} for index, telemetry in enumerate(runs)]
    return {"report": {"runs": reported}, "utilisation": utilisation}


def used(run, **figures):
    nothing = dict.fromkeys(("samples_per_second", "achieved_flops", "utilisation", "missing"))
    return {"run": run} | nothing | figures


def test_columns_are_those_that_a_run_fills():
    shown = verification(
        {"energy_joules": None, "memory_peak_bytes": 3 * 2**20, "communication_share": 0.25},
        {"energy_joules": 5430.5, "memory_peak_bytes": None},
        utilisation=[
            used(0, samples_per_second=45_678.9, achieved_flops=2.5e12),
            used(1, utilisation=0.4217),
        ],
    )

    assert [(column.heading, list(column.texts)) for column in measured_columns(shown)] == [
        ("Samples per second", ["45,679", "–"]),
        ("Energy, timed", ["–", "5,430\u00a0J"]),
        ("Memory, peak", ["3.000\u00a0MiB", "–"]),
        ("In communication", ["25.0\u00a0%", "–"]),
        ("Model FLOP/s", ["2,500\u00a0GFLOP/s", "–"]),
        ("MFU", ["–", "42.2\u00a0%"]),
    ]


def test_replay_without_telemetry_has_no_column():
    assert measured_columns({"report": None, "utilisation": []}) == []
    assert measured_columns(verification({}, utilisation=[])) == []


RULE = {"count": 5, "dropped": 1, "started": 5}


def own(file, seconds):
    numbers = {"best quality": 98.1, "epoch": 7.0}
    formula = "seconds on the mlperf clock to the first evaluation with top1Accuracy >= 97.5"
    return {"name": f"TTA of {file}", "formula": formula, "numbers": numbers, "value": seconds,
            "unit": "s"}  # fmt: skip


def step(name, numbers, value, unit):
    return {"name": name, "formula": "a x b", "numbers": numbers, "value": value, "unit": unit}


TIMES = {"a": 10.0, "b": 12.0, "c": 14.0, "d": 16.0, "e": None}


def test_runs_are_one_step_that_says_which_count():
    steps = [own(file, seconds) for file, seconds in TIMES.items()]
    shown = shown_steps([*steps, step("TTA", TIMES, 14.0, "s")], RULE)

    assert [each.name for each in shown] == ["Time to accuracy of each run", "TTA"]
    assert shown[0].value == "4 of 5 reached the target"
    assert [(run.file, run.use) for run in shown[0].runs] == [
        ("a", "dropped as fastest"),
        ("b", "counts"),
        ("c", "counts"),
        ("d", "counts"),
        ("e", "dropped as slowest"),
    ]
    assert shown[1].working == "(12 + 14 + 16) / 3 = 14.000\u00a0s"
    assert shown[1].numbers == {}


def test_wrong_sum_is_not_written():
    shown = shown_steps([step("TTA", TIMES, 13.0, "s")], RULE)

    assert shown[0].working is None
    assert shown[0].numbers == TIMES


def test_median_window_of_more_runs_counts():
    rule = {"count": 3, "dropped": 1, "started": 3}

    uses = run_uses([30.0, 20.0, 21.0, 22.0, 10.0], rule)

    # The window of three runs in a row with the median of the three means: runs 2 to 4.
    assert uses.count("counts") == 1
    assert uses.count("not counted") == 2


def test_first_that_converged_count():
    rule = {"count": 2, "dropped": 0, "started": 4}
    assert run_uses([None, 5.0, 4.0, 3.0], rule) == [
        "not counted",
        "counts",
        "counts",
        "not counted",
    ]
    assert run_uses([None, None, None, 3.0], rule) == ["not counted"] * 4


@pytest.mark.parametrize(
    ("given", "working"),
    [
        (
            step("normalisation", {"reference mean": 8.5, "submission mean": 8.0}, 1.0625, ""),
            "8.5 / 8 = 1.0625",
        ),
        (
            step("normalisation", {"reference mean": 8.0, "submission mean": 10.0}, 1.0, ""),
            "8 / 10 is 0.8, below 1; factor = 1",
        ),
        # Mean 6 and population standard deviation 2, so 33.33 %.
        (
            step("coefficient of variation", {"a": 4.0, "b": 8.0, "c": None}, 100 / 3, "%"),
            "2 / 6 × 100 = 33.33 %",
        ),
        (
            step("cost to accuracy", {"TTA (s)": 1800.0, "price (USD/h)": 3.0}, 1.5, "USD"),
            "1800 / 3600 × 3 = 1.5 USD",
        ),
        (
            step("cost to accuracy", {"TTA (s)": 1800.0, "price (USD/h)": None}, None, "USD"),
            "The submission states no price, so it has no cost.",
        ),
        (step("luck", {"a": 1.0}, 1.0, ""), None),
    ],
)
def test_rule_is_written_with_its_numbers(given, working):
    assert shown_steps([given], RULE)[0].working == working


def test_normalisation_multiplies_the_raw_time():
    steps = [
        step("normalisation", {}, 1.25, ""),
        step("TTA", {"raw TTA (s)": 80.0}, 100.0, "s"),
    ]
    assert shown_steps(steps, None)[1].working == "80 × 1.25 = 100.000\u00a0s"
    assert shown_steps(steps, None)[1].rule == "A × b."


def test_long_sum_is_not_spelled_out():
    assert addends_over_count([2.0] * 12) == "24 / 12"


def test_metric_keeps_its_case():
    convergence = {"name": "convergence", "unit": "samples_count"}
    assert convergence_unit({"steps": [convergence]}) == "samples"
    quality = {"name": "quality", "formula": "top1Accuracy as stated", "numbers": {}}
    shown = shown_steps([quality | {"value": 94.0, "unit": "percent"}], None)
    assert shown[0].rule == "top1Accuracy as stated."


def test_settings_of_logs_follow_the_claims():
    runs = [{"settings": {"batch_size": 64.0, "opt_base_learning_rate": 0.00055}}] * 2
    submission = {"hyperparameters": {"batch_size": 64.0}, "runs": runs}

    assert stated_settings(submission) == [
        Setting("batch_size", (64.0,), by_logs=False),
        Setting("opt_base_learning_rate", (0.00055,), by_logs=True),
    ]


def test_runs_that_differ_show_every_value():
    runs = [{"settings": {"lora_rank": 16.0}}, {"settings": {"lora_rank": 32.0}}]
    found = stated_settings({"hyperparameters": {}, "runs": runs})

    assert [each.text for each in found] == ["16, 32"]


def test_run_without_settings_states_none():
    assert stated_settings({"hyperparameters": {}, "runs": [{"settings": None}]}) == []
