"""Try to escape from the sandbox. The last line of output lists the successes as JSON."""

import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, "/")
# This file's neighbour only in the sandbox.
runner: Any = importlib.import_module("runner")

SECRETS = ("/etc/shadow", "/etc/passwd", "/var/run/docker.sock", "/proc/kcore", "/dev/mem")
PLACES = ("/", "/dev", "/usr/lib", "/packages", "/package", "/proc/sys/kernel")
NEW_USER_NAMESPACE = 0x10000000
MOST_CHILDREN = 4096


def writes_sysctl() -> bool:
    """Write a kernel setting with its present value."""
    path = Path("/proc/sys/kernel/core_pattern")
    path.write_text(path.read_text())
    return True


def sees_host() -> bool:
    """Read a file of the host or the worker, or a token in the environment."""
    seen = [name for name in (*SECRETS, ORDERS["module"]) if os.access(name, os.R_OK)]
    # A container has the null device in place of some files.
    has_file = any(not Path(name).samefile(os.devnull) for name in seen)
    return has_file or any("FINISHLINE" in name for name in os.environ)


def opens_network() -> bool:
    """Open an internet socket."""
    socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    return True


def reaches_parent() -> bool:
    """Signal or read a process outside, beyond the sandbox's own first process."""
    listed = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return any(_signalled(pid) for pid in {*range(2, MOST_CHILDREN), *listed} - {1, os.getpid()})


def _signalled(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def traces() -> bool:
    """Open the memory of the first process, which is bubblewrap and ends the sandbox."""
    with open("/proc/1/mem", "r+b"):  # noqa: PTH123
        return True


def makes_namespace() -> bool:
    """Make a user namespace, the way to capabilities."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.unshare(NEW_USER_NAMESPACE) == 0)


def writes_outside() -> bool:
    """Write to a place outside /scratch and /dev/shm."""
    return any(_written(Path(place) / "probe") for place in PLACES)


def _written(path: Path) -> bool:
    try:
        path.write_text("x")
    except OSError:
        return False
    return True


def forks_past_limit() -> bool:
    """Start more processes than the limit allows."""
    children = []
    try:
        for _ in range(MOST_CHILDREN):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            children.append(pid)
            if len(children) > ORDERS["limits"]["RLIMIT_NPROC"]:
                return True
    except OSError:
        pass
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return False


def outgrows_memory() -> bool:
    """Hold more private memory than the limit allows."""
    return bool(bytearray(2 * ORDERS["limits"]["RLIMIT_DATA"]))


PROBES: tuple[Callable[[], bool], ...] = (
    writes_sysctl,
    sees_host,
    opens_network,
    reaches_parent,
    traces,
    makes_namespace,
    writes_outside,
    forks_past_limit,
    outgrows_memory,
)


def succeeds(probe: Callable[[], bool]) -> bool:
    try:
        return probe()
    except (OSError, MemoryError, ImportError):
        return False


ORDERS: dict[str, Any] = json.loads(sys.argv[1])
runner.limit(ORDERS)
sys.stdout.write(json.dumps([probe.__name__ for probe in PROBES if succeeds(probe)]) + "\n")
