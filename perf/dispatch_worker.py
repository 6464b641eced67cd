"""`python -m worker` for perf/dispatch.py: it notes when it was free and when a child started.

Each note is a JSON line in the file that FINISHLINE_PERF_NOTES names: event and time.
Its training process is perf/dispatch_child.py.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import worker.__main__
import worker.training
from finishline.rules.verification.messages import Lease, ReplayReport
from worker.child_process import ChildProcess, Host
from worker.link import WorkerLink

CHILD = (sys.executable, str(Path(__file__).with_name("dispatch_child.py")))


def note(what: str) -> None:
    """Add a line."""
    line = json.dumps({"what": what, "at": time.time()})
    with Path(os.environ["FINISHLINE_PERF_NOTES"]).open("a") as notes:
        notes.write(line + "\n")


class NotingChild(ChildProcess):
    """Notes when its process is started."""

    def __init__(self, orders: dict[str, Any], **named: Any) -> None:
        super().__init__(orders, **named)
        note("child")


class NotingClient(WorkerLink):
    """Notes when a report is answered: from then on the worker is free."""

    def report(self, grant: Lease, report: ReplayReport) -> None:
        """Hand in the report."""
        super().report(grant, report)
        note("free")


if __name__ == "__main__":
    vars(worker.training)["ChildProcess"] = NotingChild
    vars(worker.__main__).update(WorkerLink=NotingClient, Host=partial(Host, command=CHILD))
    sys.exit(worker.__main__.main())
