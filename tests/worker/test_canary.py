"""The canary of a processor, on clocks that play noise and on the real one."""

import itertools

import pytest

from worker.canary import best_seconds, canary_gflops
from worker.measuring import measure_apart


def clock_of(*seconds):
    """A clock whose steps take so long, one after the other; nothing passes between them."""
    return itertools.chain.from_iterable(
        [(end - taken), end]
        for taken, end in zip(seconds, itertools.accumulate(seconds), strict=True)
    )


def test_the_best_of_all_times_counts_whatever_disturbs_the_others():
    ticks = iter([0.0, *clock_of(3.0, 1.0, 8.0, 2.0)])
    assert best_seconds(lambda: None, seconds=14.0, clock=lambda: next(ticks)) == 1.0


def test_a_step_longer_than_the_time_is_timed_once():
    ticks = iter([0.0, *clock_of(9.0)])
    assert best_seconds(lambda: None, seconds=0.5, clock=lambda: next(ticks)) == 9.0


def test_the_figure_is_that_of_the_best_product_of_float32(monkeypatch):
    multiplied = []
    monkeypatch.setattr("worker.canary.np.matmul", lambda *both, out: multiplied.append(both))
    monkeypatch.setattr("worker.canary.best_seconds", lambda step, *, seconds: step() or 1e-3)
    # A product of two matrices of n x n takes 2 n^3 operations: 2 * 256^3 in a millisecond.
    assert canary_gflops() == pytest.approx(33.554432)
    first, timed = multiplied
    assert [(one.shape, one.dtype.name) for one in (*first, *timed)] == [
        ((256, 256), "float32")
    ] * 4


def test_no_processor_is_outside_of_a_thousandfold_range():
    assert 0.1 < canary_gflops(seconds=0.01) < 10_000


def test_the_worker_gets_a_reading_with_what_it_may_be_compared_with():
    answer = measure_apart("worker.canary", {}, 60.0)
    assert answer["gflops"] > 0.1
    assert "float32, one thread" in answer["configuration"]
