"""A periodic thread, driven by events: no test here waits for time to pass."""

import logging
import threading
from queue import SimpleQueue

import pytest

from finishline.periodic import PeriodicThread

NEVER = 3600.0


class Steps:
    """Does one thing after the other, and reports each: returns a number, raises an error."""

    def __init__(self, results=()):
        self._results = iter(results)
        self.done = SimpleQueue()

    def __call__(self):
        result = next(self._results, None)
        try:
            if isinstance(result, Exception):
                raise result
            return result
        finally:
            self.done.put(threading.current_thread().name)

    def wait(self, count=1):
        for _ in range(count):
            self.done.get(timeout=20)


@pytest.fixture
def make():
    made = []

    def make(step, **other):
        thread = PeriodicThread("counter", **({"seconds": NEVER, "step": step} | other))
        made.append(thread)
        return thread

    yield make
    for thread in made:
        thread.stop()
        assert not thread.is_running


def test_steps_follow_each_other(make):
    steps = Steps()
    thread = make(steps, seconds=0.0)
    assert not thread.is_running
    thread.start()
    steps.wait(3)
    assert not thread.was_woken
    assert steps.done.get(timeout=20) == "counter"


def test_a_wakeup_has_a_step_at_once_and_each_is_seen(make):
    steps, wakeup = Steps(), threading.Event()
    thread = make(steps, wakeup=wakeup)
    thread.start()
    for _ in range(3):
        wakeup.set()
        steps.wait()
    assert thread.was_woken
    thread.wake()
    steps.wait()


class Held(Steps):
    """A step that is under way until it may go on."""

    def __init__(self):
        super().__init__()
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self):
        self.begun.set()
        assert self.go_on.wait(20)
        return super().__call__()


@pytest.fixture
def held(make):
    steps = Held()
    thread = make(steps)
    thread.wake()
    thread.start()
    assert steps.begun.wait(20)
    yield thread, steps
    steps.go_on.set()


def test_a_wakeup_during_a_step_has_another_step(held):
    thread, steps = held
    thread.wake()
    steps.go_on.set()
    steps.wait(2)


def test_a_stop_waits_no_longer_than_its_bound(held):
    thread, _ = held
    thread.stop(join_seconds=0.0)
    assert thread.is_running


def test_a_step_says_how_long_to_wait_after_it(make):
    steps = Steps([0.0, 0.0, NEVER])
    thread = make(steps)
    thread.wake()
    thread.start()
    steps.wait(3)


def test_it_stops_at_once_and_is_started_once(make):
    steps, seen = Steps(), []
    with make(steps) as thread:
        assert thread.is_running
    assert not thread.is_running
    assert steps.done.empty()
    with pytest.raises(RuntimeError):
        thread.start()
    make(steps).stop()  # It was never started.
    with make(lambda: seen.append(last.is_stopping), last_step=True) as last:
        pass
    assert seen == [True]


def test_a_step_may_end_its_thread(make):
    steps = Steps()

    def step():
        thread.end()
        steps()

    thread = make(step, seconds=0.0, last_step=True)
    thread.start()
    steps.wait()
    thread.stop()
    assert steps.done.empty()


def test_a_pause_of_a_step_ends_with_the_stop(make):
    begun = threading.Event()

    def step():
        begun.set()
        thread.pause(NEVER)

    thread = make(step, seconds=0.0)
    thread.start()
    assert begun.wait(20)
    thread.stop()
    assert not thread.is_running


def test_errors_are_logged_once_a_kind_and_so_is_the_recovery(make, caplog):
    away = ConnectionError("refused")
    steps = Steps([None, away, away, ValueError("odd"), away, None, None, away])
    caplog.set_level(logging.INFO, "finishline.periodic")
    with make(steps, seconds=0.0, outages=(OSError,)):
        steps.wait(8)
    told = [(record.getMessage(), record.exc_info is None) for record in caplog.records]
    assert told[:4] == [
        ("counter failed (refused); trying again until it works", True),
        ("counter failed (odd); trying again until it works", False),
        ("counter works again", True),
        ("counter failed (refused); trying again until it works", True),
    ]
