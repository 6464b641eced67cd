import pytest

from finishline.rules.scoring.utilisation import baseline_of, drift_of


def test_baseline_is_the_median_of_the_first_five_readings():
    assert baseline_of([100, 90, 110, 101, 99, 50, 50, 50, 50, 50, 50]) == 100


@pytest.mark.parametrize("readings", [[], [100.0], [100.0, 101.0]])
def test_two_readings_are_no_baseline(readings):
    assert baseline_of(readings) is None


def test_three_readings_are_a_baseline():
    assert baseline_of([100.0, 104.0, 101.0]) == 101.0


@pytest.mark.parametrize(
    ("reading", "is_too_far"),
    [(97.1, False), (96.9, True), (102.9, False), (103.1, True), (100.0, False)],
)
def test_a_worker_may_be_three_percent_off_in_either_direction(reading, is_too_far):
    assert drift_of(reading, 100.0).is_too_far is is_too_far


def test_the_sentence_says_how_far_which_way_and_from_what():
    slower = drift_of(80.0, 100.0).sentence()
    assert slower.startswith("20.0 % slower than its own baseline of 100 GFLOP/s")
    assert "5.0 % faster" in drift_of(105.0, 100.0).sentence()


def test_without_a_baseline_there_is_no_drift():
    assert drift_of(80.0, None) is None
    assert drift_of(80.0, 0.0) is None
    assert drift_of(0.4, 0.5).ratio == pytest.approx(0.8)
