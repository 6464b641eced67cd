"""A code submission without a sandbox, as a process of this user: for its author to look into.

It can reach all that this user can. Only `python -m worker.sandbox.local --plain` starts one.
"""

import json
import os
import signal
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path

from worker.sandbox.order import Order, Started, channel_pair, runner_orders, spawn, variables


def launch(order: Order, folder: Path) -> Started:
    """Start the runner with the worker's own packages, in the empty `folder`. Raises OSError."""
    homes = dict.fromkeys(("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR"), str(folder))
    with channel_pair() as (end, inside):
        orders = runner_orders(order, inside.fileno()) | {
            "site": sysconfig.get_path("purelib"),
            "package": str(order.package),
            "limits": {},
        }
        process = spawn(
            [sys.executable, "-I", "-S", "-B", "-u", str(order.runner), json.dumps(orders)],
            variables=variables(order) | homes | {"PATH": os.environ.get("PATH", os.defpath)},
            folder=folder,
            descriptors=[inside.fileno()],
        )

    def stop() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    return Started(process, end, process.pid, stop)
