"""Steps of a score: grouped by run, written out, never with a sum that does not come out."""

from typing import Any

import pytest

from web.steps import addends_over_count, convergence_unit, run_uses, shown_steps

RULE = {"count": 5, "dropped": 1, "started": 5}


def own(file: str, seconds: float | None) -> dict[str, Any]:
    numbers = {"best quality": 98.1, "epoch": 7.0}
    formula = "seconds on the mlperf clock to the first evaluation with top1Accuracy >= 97.5"
    return {"name": f"TTA of {file}", "formula": formula, "numbers": numbers, "value": seconds,
            "unit": "s"}  # fmt: skip


def step(name: str, numbers: dict[str, Any], value: float | None, unit: str) -> dict[str, Any]:
    return {"name": name, "formula": "a x b", "numbers": numbers, "value": value, "unit": unit}


TIMES = {"a": 10.0, "b": 12.0, "c": 14.0, "d": 16.0, "e": None}


def test_the_runs_are_one_step_that_says_which_of_them_count() -> None:
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


def test_a_sum_that_does_not_come_out_is_not_written() -> None:
    shown = shown_steps([step("TTA", TIMES, 13.0, "s")], RULE)

    assert shown[0].working is None
    assert shown[0].numbers == TIMES


def test_of_more_runs_than_count_the_median_window_counts() -> None:
    rule = {"count": 3, "dropped": 1, "started": 3}

    uses = run_uses([30.0, 20.0, 21.0, 22.0, 10.0], rule)

    # The window of three runs in a row with the median of the three means: runs 2 to 4.
    assert uses.count("counts") == 1
    assert uses.count("not counted") == 2


def test_the_first_that_converged_count_where_more_are_started() -> None:
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
def test_each_rule_is_written_out_with_its_numbers(
    given: dict[str, Any], working: str | None
) -> None:
    assert shown_steps([given], RULE)[0].working == working


def test_normalisation_multiplies_the_raw_time() -> None:
    steps = [
        step("normalisation", {}, 1.25, ""),
        step("TTA", {"raw TTA (s)": 80.0}, 100.0, "s"),
    ]
    assert shown_steps(steps, None)[1].working == "80 × 1.25 = 100.000\u00a0s"
    assert shown_steps(steps, None)[1].rule == "A × b."


def test_a_long_sum_is_not_spelled_out() -> None:
    assert addends_over_count([2.0] * 12) == "24 / 12"


def test_a_metric_keeps_its_case_and_a_unit_its_word() -> None:
    convergence = {"name": "convergence", "unit": "samples_count"}
    assert convergence_unit({"steps": [convergence]}) == "samples"
    quality = {"name": "quality", "formula": "top1Accuracy as stated", "numbers": {}}
    shown = shown_steps([quality | {"value": 94.0, "unit": "percent"}], None)
    assert shown[0].rule == "top1Accuracy as stated."
