"""Channel of a worker to a training of several processes: a folder with orders and a named pipe."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

ORDERS = "orders.json"
EVENTS = "events"


class GroupChannel:
    """The parent's end. The pipe ends when the launcher and every process it started are gone.

    The launcher inherits `writer` and so keeps the pipe open until the first process opens it; the
    parent has to close its own copy once the launcher runs.
    """

    def __init__(self, orders: dict[str, Any]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="finishline-run-"))
        (self.folder / ORDERS).write_text(json.dumps(orders))
        os.mkfifo(self.folder / EVENTS, mode=0o600)
        # Opening a named pipe waits for the other end unless told not to; reading then may wait.
        self.reader = os.open(self.folder / EVENTS, os.O_RDONLY | os.O_NONBLOCK)
        self.writer = os.open(self.folder / EVENTS, os.O_WRONLY)
        os.set_blocking(self.reader, True)

    def close_writer(self) -> None:
        """Leave the pipe to the launcher and its processes."""
        os.close(self.writer)

    def remove(self) -> None:
        """Remove the folder; harmless if it is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)


def read_orders(folder: Path) -> dict[str, Any]:
    """Read the orders for a process of the group."""
    orders: dict[str, Any] = json.loads((folder / ORDERS).read_text())
    return orders


def open_events(folder: Path) -> int:
    """The writing end of the pipe, in a process of the group."""
    return os.open(folder / EVENTS, os.O_WRONLY)
