"""Items per second, on a clock that plays a noisy host."""

import pytest

from worker.throughput import ROUNDS, bench, measure_throughput


class Host:
    """A clock that goes on by `seconds` with each call; some rounds are disturbed."""

    def __init__(self, *, seconds, disturbed=()):
        self.now, self.seconds, self.disturbed = 0.0, seconds, set(disturbed)
        self.calls, self.waits = 0, 0

    def call(self):
        self.calls += 1
        self.now += self.seconds * (10 if self.waits - 2 in self.disturbed else 1)

    def wait(self):
        self.waits += 1

    def clock(self):
        return self.now


def measured(host, **settings):
    return measure_throughput(
        host.call,
        items_per_call=64,
        synchronise=host.wait,
        clock=host.clock,
        **({"seconds": 7.0} | settings),
    )


def test_throughput_is_items_by_seconds():
    found = measured(Host(seconds=0.1))
    assert found.items_per_second == pytest.approx(640)
    assert found.seconds_per_call == pytest.approx(0.1)


def test_rounds_beside_a_busy_neighbour_do_not_move_the_median():
    found = measured(Host(seconds=0.1, disturbed=[1, 4, 6]))
    assert found.items_per_second == pytest.approx(640)
    assert found.slowest == pytest.approx(64)
    assert found.fastest == pytest.approx(640)


def test_it_takes_about_as_long_as_asked_and_waits_at_the_edges_alone():
    host = Host(seconds=0.125)
    found = measured(host, seconds=7.0)
    assert found.calls == 56
    assert host.waits == 2 + ROUNDS  # after the warm-up, after the first step, after each round


def test_a_step_longer_than_the_time_is_measured_once_a_round():
    assert measured(Host(seconds=100.0), seconds=1.0).calls == ROUNDS


def test_the_digits_reference_trains_and_infers_on_made_up_data():
    told = {"reference": "digits", "hyperparameters": {}, "device": "cpu", "seconds": 0.01}
    answer = bench(told)
    assert answer["training"]["items_per_call"] == 64
    assert answer["inference"]["items_per_call"] == 599
    assert answer["steps_per_epoch"] == 18  # 1198 // 64
    assert answer["telemetry"]["memory_peak_bytes"] > 2**20
