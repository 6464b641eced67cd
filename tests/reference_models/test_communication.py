"""Seconds of exchange: by the clock, by events of an accelerator, by torch's own statistics."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from reference_models import communication
from reference_models.communication import Exchange, exposed_seconds

ROOT = Path(__file__).parents[2]

# One process of a group of one: torch's statistics are those of any number.
PROGRAM = """
import os, sys, torch
import torch.distributed as dist
from reference_models.communication import SAMPLED, Exchange
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
exchange = Exchange()
exchange.follow(model)
before = exchange.seconds()
for _ in range(12):
    model(torch.ones(8, 300)).sum().backward()
assert exchange.how() == SAMPLED
assert before == 0.0, before
assert 0.0 < exchange.seconds() < 60.0, exchange.seconds()
print("done", flush=True)
os._exit(0)
"""


def test_nothing_exchanged_is_no_number():
    assert Exchange().seconds() is None


def test_every_exchange_is_timed_by_the_clock_on_a_processor(monkeypatch):
    stamps = iter([10.0, 10.5, 20.0, 22.0])
    monkeypatch.setattr(communication.time, "perf_counter", lambda: next(stamps))
    exchange = Exchange()
    for _ in range(2):
        with exchange.timed(torch.zeros(1)):
            pass
    assert exchange.seconds() == pytest.approx(2.5)


def test_events_of_an_accelerator_are_read_once_and_after_the_exchange(monkeypatch):
    told = []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            told.append("record")

        def elapsed_time(self, end):
            told.append("read")
            return 250.0  # milliseconds

    monkeypatch.setattr(torch.cuda, "Event", Event)
    exchange = Exchange()
    for _ in range(2):
        with exchange.timed(SimpleNamespace(is_cuda=True)):
            told.append("exchange")
    assert told == ["record", "exchange", "record"] * 2
    assert exchange.seconds() == exchange.seconds() == pytest.approx(0.5)
    assert told[6:] == ["read", "read"]


def test_what_is_hidden_behind_computing_does_not_count():
    statistics = {
        "avg_backward_comm_time": 140_000_000,
        "avg_backward_compute_comm_overlap_time": 90_000_000,
        "iteration": 30,
    }
    assert exposed_seconds(statistics) == pytest.approx(30 * 0.05)
    assert exposed_seconds({}) == 0.0


@pytest.mark.filterwarnings("ignore")
def test_statistics_of_data_parallel_training_are_those_torch_keeps(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store")],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.stdout.strip() == "done", ended.stderr
