"""`python -m worker` for perf/dispatch.py: it notes when it was free and when a child started.

Each note is a JSON line in the file that FINISHLINE_PERF_NOTES names: event, time and attempt.
With `child` as its argument this is the training process: the worker's own, which trains nothing.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import reference_models
import worker.__main__
import worker.training
from finishline.rules.scoring.run import Phase
from finishline.rules.verification.messages import Lease, ReplayJob, ReplayReport
from reference_models import Measurement
from worker import child
from worker.child_process import ChildProcess, Host
from worker.link import WorkerLink

CHILD = (sys.executable, __file__, "child")
CURVE = (50.0, 80.0, 96.0, 98.0)


def note(what: str, attempt_id: str) -> None:
    """Add a line."""
    line = json.dumps({"what": what, "at": time.time(), "attempt": attempt_id})
    with Path(os.environ["FINISHLINE_PERF_NOTES"]).open("a") as notes:
        notes.write(line + "\n")


class NotingChild(ChildProcess):
    """Notes when its process is started."""

    def __init__(self, job: ReplayJob, index: int, **named: Any) -> None:
        super().__init__(job, index, **named)
        note("child", job.attempt_id)


class NotingClient(WorkerLink):
    """Notes when a report is answered: from then on the worker is free."""

    def report(self, grant: Lease, report: ReplayReport) -> None:
        """Hand in the report."""
        super().report(grant, report)
        note("free", grant.attempt_id)


def train(config: Any, *, seed: int, device: str, data_dir: Path) -> Iterator[Phase | Measurement]:
    """Reaches its target at once, on a curve that no other seed has."""
    own = seed % 1_000_003 * 1e-6
    yield from (Phase.WARMUP, Phase.DATA, Phase.TRAIN)
    for epoch, quality in enumerate(CURVE, 1):
        yield Phase.EVAL
        yield Measurement(epoch=epoch, samples=epoch * 1152, quality=quality + own)
        yield Phase.TRAIN


def be_child() -> None:
    """Train as a worker's process does, with the reference above."""
    sys.modules["nothing"] = SimpleNamespace(  # type: ignore[assignment]
        DATA_SET_SHA256="nothing", configure=dict, train=train
    )
    reference_models.REFERENCES["nothing"] = "nothing"
    child.main()


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        be_child()
        sys.exit()
    worker.training.ChildProcess = NotingChild  # type: ignore[misc]
    worker.__main__.WorkerLink = NotingClient  # type: ignore[misc]
    worker.__main__.Host = partial(Host, command=CHILD)  # type: ignore[misc, assignment]
    sys.exit(worker.__main__.main())
