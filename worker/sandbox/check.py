"""Test the box of this host before it takes entries: try to leave a real one."""

import functools
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worker.sandbox.order import RUNNER, Backend, BoxUnavailableError, Order
from worker.sandbox.packages import Bind
from worker.sandbox.protocol import Limits
from worker.sandbox.start import BACKENDS, Box, check_host

PROBE = RUNNER.with_name("probe.py")
LIMITS = Limits(memory_bytes=256 << 20, processes=32, run_seconds=5.0, prepare_seconds=5.0)
SECONDS = 10.0
Entries = Literal["anyone", "known", "off"]
LEAKS = {
    "writes_sysctl": "it can write a setting of the kernel",
    "sees_host": "it can read a file or a token of this host",
    "opens_network": "it can open a network connection",
    "reaches_parent": "it can signal processes outside",
    "traces": "it can write to another process's memory",
    "makes_namespace": "it can make a namespace",
    "writes_outside": "it can write outside its scratch folder",
    "forks_past_limit": "it can start more processes than its limit",
    "outgrows_memory": "it can hold more memory than its limit",
}


@dataclass(frozen=True)
class BoxState:
    """Whose packages this host may run.

    `anyone` needs a memory cgroup; without one `known` participants alone, whom an organiser has
    approved, as some kinds of memory are bounded by nothing else. `why` says why it is less.
    """

    entries: Entries
    why: str | None = None

    def __str__(self) -> str:
        return self.entries if self.why is None else f"{self.entries}: {self.why}"


@functools.cache
def check_box(backend: Backend = "bwrap") -> BoxState:
    """Start a box on this host and try to leave it; once a process."""
    try:
        check_host(backend)
        leaks = _probe(backend)
    except BoxUnavailableError as error:
        return BoxState("off", str(error))
    if leaks:
        return BoxState("off", "a sandbox leaks: " + "; ".join(LEAKS[name] for name in leaks))
    why = BACKENDS[backend].why_no_cgroup()
    if why is None:
        return BoxState("anyone")
    return BoxState("known", f"no memory cgroup bounds the whole sandbox: {why}")


def _probe(backend: Backend) -> list[str]:
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as secret:
        Path(folder).chmod(0o755)
        Path(secret.name).chmod(0o644)
        order = Order(
            package=Path(folder),
            module=secret.name,
            packages={},
            limits=LIMITS,
            extra=[Bind(RUNNER, "/runner.py")],
            runner=PROBE,
            backend=backend,
        )
        with Box(order) as box:
            return _read(box)


def _read(box: Box) -> list[str]:
    give_up_at = time.monotonic() + SECONDS
    status = box.exit_status(wait_seconds=SECONDS)
    while time.monotonic() < give_up_at:  # The log arrives by a thread of its own.
        lines = box.log_tail().strip().splitlines()
        if lines and lines[-1].startswith("["):
            found = json.loads(lines[-1])
            return [name for name in LEAKS if name in found]
        if status is not None and not box.reads:
            break
        time.sleep(0.01)
    raise BoxUnavailableError(box.why_not_started())
