"""Measurements in a process of their own: the worker itself never loads torch.

A measuring module is started as `python -m MODULE`, reads one JSON object from its standard input
and writes one to its standard output.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from worker.child_process import child_environment

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2

Answer = dict[str, Any]
Measure = Callable[[str, Mapping[str, Any], float], Answer | None]
"""Measures: a module, its orders, the seconds it may take."""


def measure_apart(
    module: str,
    orders: Mapping[str, Any],
    limit_seconds: float,
    *,
    stop: Callable[[], bool] = lambda: False,
    niceness: int = 0,
) -> Answer | None:
    """Run a measuring module; None, with a line in the log, if it fails or is too slow.

    It gets as many threads as the orders say, else one. It is stopped as soon as `stop` says so.
    With a `niceness` it leaves the processor to others.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(int(orders.get("threads", 1))),
        start_new_session=True,
    )
    if niceness:
        os.setpriority(os.PRIO_PROCESS, process.pid, niceness)
    told = json.dumps(dict(orders) | {"parent_pid": os.getpid()}).encode()
    try:
        said, errors = _converse(process, told, limit_seconds, stop)
    except subprocess.TimeoutExpired:
        if not stop():
            log.warning("%s took longer than %.0f s and was stopped", module, limit_seconds)
        return None
    finally:
        _end(process)
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "nothing on standard error"
        log.warning("%s ended with exit code %d: %s", module, process.returncode, last)
        return None
    return _read(module, said)


def _converse(
    process: "subprocess.Popen[bytes]",
    told: bytes,
    limit_seconds: float,
    stop: Callable[[], bool],
) -> tuple[bytes, bytes]:
    """Its output and errors. Raises TimeoutExpired at the limit, or when it is to stop."""
    give_up_at = time.monotonic() + limit_seconds
    unsent: bytes | None = told
    while True:
        try:
            return process.communicate(unsent, timeout=min(POLL_SECONDS, limit_seconds))
        except subprocess.TimeoutExpired:
            unsent = None  # A write under way goes on by itself.
            if stop() or time.monotonic() > give_up_at:
                raise


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process and its children; a reaped one is gone already."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _read(module: str, said: bytes) -> Answer | None:
    lines = said.splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        log.warning("%s answered with no JSON object", module)
        return None
    return answer
