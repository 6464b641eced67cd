"""Seconds of exchange in the train phases of a run, from a count made for the test."""

import sys
from types import SimpleNamespace

import pytest

from finishline.rules.scoring.run import Phase
from worker.communication import EXCHANGE_MODULE, Communication


@pytest.fixture
def exchange(monkeypatch):
    """Stands for what the reference counts; a test sets its seconds."""
    exchange = SimpleNamespace(so_far=None, how=lambda: "by hand")
    exchange.seconds = lambda: exchange.so_far
    monkeypatch.setitem(sys.modules, EXCHANGE_MODULE, SimpleNamespace(EXCHANGE=exchange))
    return exchange


def test_what_is_exchanged_in_a_train_phase_counts_and_nothing_else(exchange):
    communication = Communication()
    for phase, so_far in [
        (Phase.WARMUP, None),
        (Phase.DATA, 0.5),  # The warm-up exchanged for half a second.
        (Phase.TRAIN, 0.5),
        (Phase.EVAL, 2.0),  # 1.5 s of training
        (Phase.TRAIN, 9.0),  # 7 s of evaluation
        (Phase.EVAL, 9.25),  # 0.25 s of training
    ]:
        exchange.so_far = so_far
        communication.enter(phase)
    assert communication.told() == {
        "communication_seconds": pytest.approx(1.75),
        "communication_how": "by hand",
    }


def test_a_training_that_exchanges_nothing_tells_nothing(exchange, monkeypatch):
    communication = Communication()
    for phase in (Phase.TRAIN, Phase.EVAL):
        communication.enter(phase)
    assert communication.told() == {}
    monkeypatch.delitem(sys.modules, EXCHANGE_MODULE)
    communication.enter(Phase.TRAIN)
    assert communication.told() == {}
