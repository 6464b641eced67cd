import math

import numpy as np
import pytest
import scipy.stats

from finishline.rules.ranking.records import Contender, record_history

DAYS = [f"2026-11-{day:02d}" for day in range(1, 20)]


def runs_of(seconds: float, *, count: int = 5, spread: float = 0.02) -> list[float]:
    """Runs around a time; the middle one is at it."""
    return [seconds * math.exp(spread * x) for x in np.linspace(-1, 1, count)]


def contender(
    name: str, day: int, seconds: float | None, *, count: int = 5, eligible: bool = True
) -> Contender:
    runs = [] if seconds is None else [seconds] if count == 1 else runs_of(seconds, count=count)
    return Contender(name, DAYS[day], seconds, runs, eligible)


def holders(*contenders: Contender) -> list[str]:
    return [record.submission_id for record in record_history(contenders).records]


def test_a_record_must_beat_its_holder_beyond_chance() -> None:
    first, close, fast = contender("a", 0, 100.0), contender("b", 1, 99.5), contender("c", 2, 90.0)

    history = record_history([fast, close, first])

    assert [r.submission_id for r in history.records] == ["a", "c"]
    (missed,) = history.not_records
    oracle = scipy.stats.ttest_ind(
        np.log(close.runs), np.log(first.runs), equal_var=False, alternative="less"
    ).pvalue
    assert oracle > 0.05
    assert missed.p_value == pytest.approx(oracle)
    assert (missed.submission_id, missed.holder, missed.tta_seconds) == ("b", "a", 99.5)
    assert f"p = {oracle:.2g}, must be below 0.05" in missed.reason


def test_a_record_tells_whom_it_beat_by_how_much_and_how_surely() -> None:
    first, fast = contender("a", 0, 100.0), contender("b", 1, 90.0)

    opening, record = record_history([first, fast]).records

    assert (opening.beaten, opening.margin_percent, opening.p_value) == (None, None, None)
    assert (record.beaten, record.date, record.single_run) == ("a", DAYS[1], False)
    assert record.margin_percent == pytest.approx(10.0)
    oracle = scipy.stats.ttest_ind(
        np.log(fast.runs), np.log(first.runs), equal_var=False, alternative="less"
    ).pvalue
    assert record.p_value == pytest.approx(oracle)


def test_the_holder_is_challenged_and_not_the_first() -> None:
    """Against "a" the last would win; against "b" it is chance."""
    assert holders(contender("a", 0, 100.0), contender("b", 1, 90.0), contender("c", 2, 89.8)) == [
        "a",
        "b",
    ]


def test_two_runs_are_enough_to_hold_a_record_against_chance() -> None:
    (record,) = record_history([contender("a", 0, 100.0, count=2), contender("b", 1, 99.9)]).records

    assert (record.submission_id, record.single_run) == ("a", False)


@pytest.mark.parametrize("count", [0, 1])
def test_a_single_run_takes_no_record_from_a_holder_of_several(count: int) -> None:
    history = record_history([contender("a", 0, 100.0), contender("b", 1, 1.0, count=count)])

    assert [r.submission_id for r in history.records] == ["a"]
    (missed,) = history.not_records
    assert (missed.p_value, missed.reason) == (
        None,
        "a single run cannot be told from the holder's runs",
    )


def test_a_single_run_holds_until_anybody_is_faster() -> None:
    opening, record, last = record_history(
        [
            contender("a", 0, 100.0, count=1),
            contender("b", 1, 99.9, count=1),
            contender("c", 2, 99.8, count=5),
            contender("d", 3, 99.7, count=5),
        ]
    ).records

    assert (opening.submission_id, opening.single_run) == ("a", True)
    assert (record.submission_id, record.single_run, record.p_value) == ("b", True, None)
    assert (last.submission_id, last.single_run) == ("c", False)


def test_who_was_rejected_breaks_a_rule_or_never_arrived_holds_nothing() -> None:
    assert holders(
        contender("rejected", 0, 1.0, eligible=False),
        contender("never", 1, None),
        contender("a", 2, 100.0),
    ) == ["a"]
    assert record_history([contender("never", 1, None)]).records == ()


def test_an_equal_or_slower_time_is_nothing_to_tell_of() -> None:
    history = record_history(
        [contender("a", 0, 100.0), contender("b", 1, 100.0), contender("c", 2, 300.0)]
    )

    assert [r.submission_id for r in history.records] == ["a"]
    assert history.not_records == ()


def test_of_one_day_the_lowest_time_comes_first_and_then_the_smaller_id() -> None:
    """A round is published at once: within it nobody took a record from anybody."""
    round_of_one_day = [contender("b", 0, 90.0), contender("a", 0, 100.0), contender("c", 0, 95.0)]
    assert holders(*round_of_one_day) == ["b"]
    assert holders(contender("b", 0, 90.0), contender("a", 0, 90.0)) == ["a"]
    assert holders(contender("never", 0, None), *round_of_one_day) == ["b"]


def test_a_lower_mean_is_asked_for_even_where_the_logs_are_lower() -> None:
    """The figure that is ranked decides who is faster; the test says whether it is chance."""
    slower = Contender("b", DAYS[1], 101.0, runs_of(50.0), True)

    assert holders(contender("a", 0, 100.0), slower) == ["a"]
