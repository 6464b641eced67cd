"""Start a training of several processes: `python -m worker.group PARENT FOLDER OPTION ... COMMAND`.

Becomes `torch.distributed.run` with these options, which starts the processes of the command and
ends them all when one dies. It drops standard input and open files, so each process gets a folder
with its orders and the pipe for its events, and the number of the process to die with. Launchers of
several hosts meet at the first host's address, and their processes share its store.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker.events import EVENTS, ORDERS, die_with_parent

# A launcher's wait for the other hosts'.
MEETING_SECONDS = 86_400


@dataclass(frozen=True)
class Meeting:
    """The place where the launchers of several hosts meet, and the `rank` of this host."""

    hosts: int
    rank: int
    address: str
    port: int


class GroupChannel:
    """The parent's end. The pipe ends with the launcher and every process that it started.

    The launcher inherits `writer`, which keeps the pipe open until the first process opens it. The
    parent closes its own copy once the launcher runs.
    """

    def __init__(self, orders: dict[str, Any]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="finishline-run-"))
        (self.folder / ORDERS).write_text(json.dumps(orders))
        os.mkfifo(self.folder / EVENTS, mode=0o600)
        # Opening a named pipe would wait for the other end. Reading then may wait.
        self.reader = os.open(self.folder / EVENTS, os.O_RDONLY | os.O_NONBLOCK)
        self.writer = os.open(self.folder / EVENTS, os.O_WRONLY)
        os.set_blocking(self.reader, True)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def main(arguments: Sequence[str]) -> None:
    """Replace this process by torch's launcher. The request to die with the parent stays."""
    parent_pid, folder, *launched = arguments
    die_with_parent(int(parent_pid))
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    os.execv(sys.executable, [*torchrun, *launched, folder, str(os.getpid())])  # noqa: S606


def launch_options(processes: int, meeting: Meeting | None = None) -> list[str]:
    """Return the launcher's options: this many processes here, and the launchers to meet.

    A single launcher chooses a port itself. Ranks are fixed, so that rank 0 is on the first host.
    """
    own = ["--nproc-per-node", str(processes)]
    if meeting is None:
        return ["--standalone", *own]
    ranks = ["--nnodes", str(meeting.hosts), "--node-rank", str(meeting.rank)]
    place = ["--master-addr", meeting.address, "--master-port", str(meeting.port)]
    return [*ranks, *place, "--rdzv-conf", f"timeout={MEETING_SECONDS}", *own]


if __name__ == "__main__":
    main(sys.argv[1:])
