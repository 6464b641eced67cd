"""Items per second, on a clock that plays a noisy host."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from reference_models import DataSetError
from worker.throughput import ROUNDS, bench, main, measure_throughput


class Host:
    """A clock that goes on by `seconds` with each call; some rounds are disturbed."""

    def __init__(self, *, seconds, disturbed=()):
        self.now, self.seconds, self.disturbed = 0.0, seconds, set(disturbed)
        self.calls, self.waits = 0, 0

    def call(self):
        self.calls += 1
        self.now += self.seconds * (10 if self.waits - 3 in self.disturbed else 1)

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
    # After the first call, after the warm-up, after a step that tells how long it takes.
    assert host.waits == 3 + ROUNDS


def test_a_step_longer_than_the_time_is_called_three_times_and_measured_once():
    host = Host(seconds=100.0)
    found = measured(host, seconds=1.0)
    assert (found.calls, found.warm_up_calls, host.calls) == (1, 1, 3)
    assert found.seconds_per_call == pytest.approx(100.0)


def test_a_step_of_half_the_time_is_measured_twice():
    assert measured(Host(seconds=3.0), seconds=7.0).calls == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DataSetError("torchvision cannot be used here"), "torchvision cannot be used here"),
        (MemoryError("no room"), "a batch of 64 does not fit into the memory of cpu"),
        (RuntimeError("[enforce fail] can't allocate memory"), "choose a smaller one with --set"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_sentence(monkeypatch, capsys, error, said):
    told = {"reference": "digits", "hyperparameters": {"batch_size": 64}, "device": "cpu"}
    monkeypatch.setattr("worker.throughput.die_with_parent", lambda pid: None)
    monkeypatch.setattr("worker.throughput.bench", lambda told: raise_(error))
    orders = io.BytesIO(json.dumps(told | {"parent_pid": 1}).encode())
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=orders))
    out = sys.stdout
    main()
    monkeypatch.setattr("sys.stdout", out)
    assert said in json.loads(capsys.readouterr().out)["missing"]


def raise_(error):
    raise error


def test_the_digits_reference_trains_and_infers_on_made_up_data():
    told = {"reference": "digits", "hyperparameters": {}, "device": "cpu", "seconds": 0.01}
    answer = bench(told)
    assert answer["training"]["items_per_call"] == 64
    assert answer["inference"]["items_per_call"] == 599
    assert answer["steps_per_epoch"] == 18  # 1198 // 64
    assert answer["telemetry"]["memory_peak_bytes"] > 2**20
