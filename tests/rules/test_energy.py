import pytest

from finishline.rules.scoring.energy import (
    counted_since,
    energy_to_target_joules,
    samples_per_joule,
    timed_joules,
)
from finishline.rules.scoring.run import Clock

# The clocks as their rules have them; 1, 10, 100 ... so that every sum tells what is in it.
JOULES = {
    "init": 1.0,
    "compile": 10.0,
    "warmup": 100.0,
    "data": 1_000.0,
    "train": 10_000.0,
    "eval": 100_000.0,
    "checkpoint": 1_000_000.0,
    "idle": 10_000_000.0,
}


@pytest.mark.parametrize(
    ("clock", "joules"),
    [("dawnbench", 11_011_111.0), ("mlperf", 11_111_000.0), ("speedrun", 11_011_000.0)],
)
def test_energy_counts_over_the_phases_on_the_clock(clock, joules):
    assert timed_joules(JOULES, Clock(clock)) == joules
    assert timed_joules(JOULES | {"cooling": 5.0}, Clock(clock)) == joules  # no phase of a ledger


def test_the_thirty_free_minutes_of_preparation_are_no_joules():
    assert timed_joules({"init": 1e6, "train": 5.0}, Clock("mlperf")) == 5.0


def test_a_counter_that_went_on_counts_the_difference():
    assert counted_since(10.0, 12.5, wraps_at=100.0) == 2.5
    assert counted_since(10.0, 10.0, wraps_at=100.0) == 0.0


def test_a_counter_that_wrapped_counts_to_its_end_and_from_zero():
    assert counted_since(90.0, 4.0, wraps_at=100.0) == 14.0


@pytest.mark.parametrize("wraps_at", [None, 80.0])
def test_a_counter_that_went_back_without_wrapping_is_refused(wraps_at):
    with pytest.raises(ValueError, match="went back from 90 to 4"):
        counted_since(90.0, 4.0, wraps_at=wraps_at)


def test_samples_per_joule_is_absent_without_energy():
    assert samples_per_joule(100, None) is None
    assert samples_per_joule(100, 0.0) is None
    assert samples_per_joule(100, 50.0) == 2.0
    assert samples_per_joule(100, 0.5) == 200.0


def test_the_energy_to_the_target_is_the_mean_of_runs_that_were_all_measured():
    assert energy_to_target_joules([100.0, 200.0, 600.0]) == 300.0
    assert energy_to_target_joules([100.0, None, 600.0]) is None
    assert energy_to_target_joules([]) is None
