"""A package without a box, as a process of this user: for its author, who wants to look into it.

Nothing is kept from it. Only `python -m worker.sandbox.local --plain` starts one. No worker does.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

from worker.sandbox.order import Order, Started, runner_orders, variables


def launch(order: Order, folder: Path) -> Started:
    """Start the package with the worker's own packages, in the empty `folder`. Raises OSError."""
    end, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    orders = runner_orders(order, inside.fileno()) | {
        "site": sysconfig.get_path("purelib"),
        "package": str(order.package),
        "limits": {},
    }
    homes = dict.fromkeys(("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR"), str(folder))
    with inside:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-u", str(order.runner), json.dumps(orders)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=variables(order) | homes | {"PATH": os.environ.get("PATH", os.defpath)},
                pass_fds=(inside.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            end.close()
            raise

    def stop() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    return Started(process, end, process.pid, stop)


def reason_of(line: str) -> None:
    """No line of a process tells more than itself."""
