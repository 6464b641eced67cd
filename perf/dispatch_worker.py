"""The worker of perf/dispatch.py: it notes when it was free and when a training process started.

Each note is a JSON line in the file that FINISHLINE_PERF_NOTES names: event and time. With `child`
as its argument it is the training process, which trains nothing, and imports no more than a
worker's own does.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import reference_models
from finishline.rules.run import Phase
from reference_models import Measurement
from worker import child

CURVE = (50.0, 80.0, 96.0, 98.0)
CHILD = (sys.executable, "-m", "perf.dispatch_worker", "child")


def train(config: Any, *, seed: int, device: str, data_dir: Path) -> Iterator[Phase | Measurement]:
    """Reach the target at once, on a curve that no other seed has."""
    own = seed % 2**40 * 2**-40
    yield from (Phase.WARMUP, Phase.DATA, Phase.TRAIN)
    for epoch, quality in enumerate(CURVE, 1):
        yield Phase.EVAL
        yield Measurement(epoch=epoch, samples=epoch * 1152, quality=quality + own)
        yield Phase.TRAIN


def be_child() -> None:
    """Train what the worker orders."""
    sys.modules["nothing"] = SimpleNamespace(  # type: ignore[assignment]
        DATA_SET_SHA256="nothing", configure=dict, train=train
    )
    reference_models.REFERENCES["nothing"] = "nothing"
    child.main()


def be_worker() -> int:
    """Work for the server until stopped."""
    from functools import partial

    import worker.__main__
    import worker.training
    from worker.child_process import ChildProcess, Host
    from worker.link import WorkerLink

    def note(what: str) -> None:
        line = json.dumps({"what": what, "at": time.time()})
        with Path(os.environ["FINISHLINE_PERF_NOTES"]).open("a") as notes:
            notes.write(line + "\n")

    class NotingChild(ChildProcess):
        def __init__(self, orders: dict[str, Any], **named: Any) -> None:
            super().__init__(orders, **named)
            note("child")

    class NotingClient(WorkerLink):
        def report(self, *arguments: Any) -> None:
            super().report(*arguments)
            note("free")  # The report is answered.

    vars(worker.training)["ChildProcess"] = NotingChild
    vars(worker.__main__).update(WorkerLink=NotingClient, Host=partial(Host, command=CHILD))
    return worker.__main__.main()


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        be_child()
    else:
        sys.exit(be_worker())
