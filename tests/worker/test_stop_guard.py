"""The guard that ends a worker which was told to stop and did not."""

import time

from worker.intake import WorkerState
from worker.stop_guard import guard_stop


def test_a_worker_that_does_not_stop_is_ended(capfd):
    state, codes = WorkerState(), []
    thread = guard_stop(state, limit_seconds=0.05, leave=codes.append)
    state.stopping = True
    thread.join(timeout=60)
    assert codes == [0]
    assert "_watch" in capfd.readouterr().err  # The log shows where the threads were.


def test_a_worker_that_was_not_told_to_stop_is_left_alone():
    codes = []
    state = WorkerState()
    thread = guard_stop(state, limit_seconds=0.0, leave=codes.append)
    thread.join(timeout=1.2)
    assert thread.is_alive()
    assert codes == []
    state.stopping = True
    thread.join(timeout=20)
    assert codes == [0]


def test_an_attempt_is_stopped_when_its_grace_is_over():
    state = WorkerState(busy=True, leave_by=time.monotonic() - 1.0)
    assert state.word() == "draining"
    thread = guard_stop(state, limit_seconds=0.0, leave=lambda code: None)
    thread.join(timeout=60)
    assert state.word() == "stopping"
