"""Measurements in processes of their own, both ends: the worker itself never loads torch.

A measuring module is started as `python -m MODULE`, reads one JSON object from its standard input
and writes one to its standard output. Each such process ends with its parent, as trainings do.
"""

import contextlib
import ctypes
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
    told: bytes | None = json.dumps(dict(orders) | {"parent_pid": os.getpid()}).encode()
    give_up_at = time.monotonic() + limit_seconds
    said = None
    try:
        while said is None:
            try:
                said, errors = process.communicate(told, timeout=min(POLL_SECONDS, limit_seconds))
            except subprocess.TimeoutExpired:
                told = None  # A write under way goes on by itself.
                if stop() or time.monotonic() > give_up_at:
                    raise
    except subprocess.TimeoutExpired:
        if not stop():
            log.warning("%s took longer than %.0f s and was stopped", module, limit_seconds)
        return None
    finally:
        if process.returncode is None:
            kill_session(process)
            process.communicate()
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else "nothing on standard error"
        log.warning("%s ended with exit code %d: %s", module, process.returncode, last)
        return None
    try:
        answer = json.loads(said.splitlines()[-1])
    except (ValueError, IndexError):
        answer = None
    if not isinstance(answer, dict):
        log.warning("%s answered with no JSON object", module)
        return None
    return answer


def kill_session(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that was not reaped, and all in its session."""
    if process.returncode is None:  # Reaped: its number may belong to another process.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def child_environment(threads: int) -> dict[str, str]:
    """The worker's environment without its secrets, with the thread count set everywhere."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("FINISHLINE_")}
    pools = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
    return (
        inherited
        | {f"{pool}_NUM_THREADS": str(threads) for pool in pools}
        | {"PYTHONUNBUFFERED": "1"}
    )


PR_SET_PDEATHSIG = 1
STATUS = Path("/proc/self/status")
PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # It died before the request was made.
        os._exit(1)


def resident_peak_bytes(status: Path = STATUS) -> int | None:
    """The largest resident set since this program was started; None where /proc has it not.

    getrusage would count the parent's memory from before this program replaced its copy.
    """
    try:
        found = PEAK.search(status.read_text())
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def accelerator_peak_bytes() -> int | None:
    """The most that torch had allocated on all accelerators; None without any."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return sum(
        int(torch.cuda.max_memory_allocated(index)) for index in range(torch.cuda.device_count())
    )


def answer_orders(answer: Callable[[Answer], Answer]) -> None:
    """Read a measuring process's orders and print its answer; other prints go to standard error."""
    orders = json.loads(sys.stdin.buffer.read())
    die_with_parent(orders["parent_pid"])
    with contextlib.redirect_stdout(sys.stderr):
        said = answer(orders)
    print(json.dumps(said), flush=True)
