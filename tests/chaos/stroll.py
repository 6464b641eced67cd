"""A benchmark that trains in a moment and needs no torch, and honest submissions to it."""

import json
import random
import re
import sys
from pathlib import Path

from finishline.rules.run import Ledger
from tests.support.run_logs import STARTED_AT_MS, make_run_log

Part = tuple[str, tuple[str, bytes]]
CURVE = (50.0, 80.0, 96.0, 98.0)
SHORT_LEASE_SECONDS = 4.0
WORKER = (sys.executable, str(Path(__file__).parents[1] / "worker" / "worker_with_fakes.py"))


def define_stroll(text, *, trainer="stroll"):
    """The digits benchmark with another trainer, which names it, and a short lease."""
    text = text.partition("\n# The calibration")[0]
    for there, here in (
        ('id = "digits"', f'id = "{trainer}"'),
        ('reference = "digits"', f'reference = "{trainer}"'),
        ("min_runs = 3", "min_runs = 1"),
        ("max_runs = 3", "max_runs = 1"),
        ("lease_seconds = 8", f"lease_seconds = {SHORT_LEASE_SECONDS:g}"),
        ("run_limit_seconds = 60", "run_limit_seconds = 30"),
    ):
        assert there in text, there
        text = text.replace(there, here)
    return re.sub(r'sha256 = "\w+"', 'sha256 = "fake-data-set"', text)


def stroll_submission(benchmark, number):
    """The parts of an honest submission; every number makes another one."""
    names = [f"run_{index}.log" for index in range(3)]
    claim = {
        "benchmark": benchmark.benchmark_id,
        "division": "closed",
        "model": f"stroll {number}",
        "framework": "none",
        "system": {
            "name": "test machine",
            "hardware_class": "cpu-chaos",
            "processor": "test processor",
            "processor_count": 2,
            "memory_gib": 24,
        },
        "hyperparameters": {"batch_size": 64},
        "runs": names,
    }
    parts = [("submission", ("submission.json", json.dumps(claim).encode()))]
    for index, name in enumerate(names):
        log = _log(benchmark, name, seed=10 * number + index, pace=5.0 + number + index / 7)
        parts.append(("logs", (name, log)))
    return parts


def _log(benchmark, name, *, seed, pace):
    higher = random.Random(seed).random() / 10  # As the trainers `stroll` and `march` do.
    return make_run_log(
        benchmark,
        [quality + higher for quality in CURVE],
        lambda epoch: epoch * pace,
        name=name,
        seed=seed,
        prepared=Ledger(init=1.0),
        eval_seconds=0.01,
        started_at_ms=STARTED_AT_MS + seed,
    )
