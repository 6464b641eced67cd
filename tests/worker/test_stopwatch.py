import pytest

from finishline.rules.scoring.run import Clock, Ledger, Phase
from worker.stopwatch import Stopwatch, clocks_disagree


@pytest.fixture
def watch():
    """Started at 10 s: 2 s init, 3 s warm-up, 0.5 s data, 4 s training, 1 s evaluation."""
    watch = Stopwatch(10.0)
    watch.enter(Phase.WARMUP, 12.0)
    watch.enter(Phase.DATA, 15.0)
    watch.enter(Phase.TRAIN, 15.5)
    watch.enter(Phase.EVAL, 19.5)
    watch.stamp(20.5)
    return watch


def test_every_second_belongs_to_one_phase(watch):
    assert watch.ledger == Ledger(init=2.0, warmup=3.0, data=0.5, train=4.0, eval=1.0)
    assert watch.ledger.total() == 10.5


def test_run_starts_at_the_first_phase_after_the_preparation(watch):
    assert watch.started_at == 15.0


def test_run_has_not_started_during_warm_up():
    watch = Stopwatch(0.0)
    watch.enter(Phase.INIT, 0.5)
    watch.enter(Phase.COMPILE, 1.0)
    watch.enter(Phase.WARMUP, 2.0)
    assert watch.started_at is None


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [("mlperf", 5.5), ("dawnbench", 9.5), ("speedrun", 4.5)],
    ids=lambda value: str(value),
)
def test_the_benchmarks_clock_says_which_phases_count(watch, clock, seconds):
    assert watch.seconds(Clock(clock), division="closed") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("parent_seconds", "child_seconds", "disagree"),
    [
        (10.0, 10.0, False),
        (10.0, 9.76, False),  # 2 % of 10 s and 50 ms allow 0.25 s
        (10.0, 9.74, True),
        (10.0, 10.26, True),
        (0.1, 0.06, False),
        (0.1, 0.04, True),
    ],
)
def test_two_clocks_may_differ_by_two_percent_and_fifty_milliseconds(
    parent_seconds, child_seconds, disagree
):
    assert clocks_disagree(parent_seconds, child_seconds) is disagree
