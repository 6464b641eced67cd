"""Start a training of several processes: `python -m worker.launcher PARENT N FOLDER COMMAND ...`.

Becomes `torch.distributed.run`, which starts N processes of the command and ends them all when one
dies. It passes on neither standard input nor open files, so each process gets the folder with its
orders and the pipe for its events, and the number of the process it is to die with.
"""

import os
import sys
from collections.abc import Sequence

from worker.parent_death import die_with_parent


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
