"""Start a training of several processes: `python -m worker.group PARENT N FOLDER COMMAND ...`.

Becomes `torch.distributed.run`, which starts N processes of the command and ends them all when one
dies. It passes on neither standard input nor open files, so each process gets the folder with its
orders and the pipe for its events, and the number of the process it is to die with.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker.own_process import die_with_parent

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


def main(arguments: Sequence[str]) -> None:
    """Replace this process by torch's launcher; the request to die with the parent stays."""
    parent_pid, processes, folder, *command = arguments
    die_with_parent(int(parent_pid))
    os.execv(sys.executable, launch(processes, folder, command, own_pid=os.getpid()))  # noqa: S606


def launch(processes: str, folder: str, command: Sequence[str], *, own_pid: int) -> list[str]:
    """The launcher's command line: one host, a port of its own choice."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes]
    return [sys.executable, *torchrun, *command, folder, str(own_pid)]


if __name__ == "__main__":
    main(sys.argv[1:])
