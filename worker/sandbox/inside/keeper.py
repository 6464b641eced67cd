"""The first process of a container: it filters calls, starts the runner, and ends with it.

It also ends with the worker, and the kernel then kills all others. Only the standard library can be
imported here. oci.py imports the constants from this file.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

# The worker's socket, the filter, and the number of the runner's channel.
WORKER_SOCKET, FILTER, CHANNEL = "/worker.sock", "/filter.bpf", 3
SET_FILTER, BY_PROGRAM = 22, 2  # PR_SET_SECCOMP and SECCOMP_MODE_FILTER
STEP_BYTES = 8


def connected() -> socket.socket:
    """Connect to the worker, which accepts two connections."""
    end = socket.socket(socket.AF_UNIX)
    end.connect(WORKER_SOCKET)
    return end


def filter_calls(program: bytes) -> None:
    """Filter the calls of this process and its descendants for good. Raises OSError."""
    steps = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("@HP", len(program) // STEP_BYTES, ctypes.addressof(steps))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SET_FILTER, BY_PROGRAM, ctypes.c_char_p(given)) != 0:
        raise OSError(ctypes.get_errno(), "the kernel takes no filter")


def reap(runner: int) -> None:
    """Reap processes that have ended. Exit with the runner's status."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == runner:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)
            if pid == 0:
                return


def main() -> None:
    """Start the runner. End with it, or when the worker closes its end or dies."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The kernel keeps it from a first process.
    orders = json.loads(sys.argv[1])
    life, channel = connected(), connected()
    if orders["processors"]:  # crun gives a container all of its cgroup's again.
        os.sched_setaffinity(0, orders["processors"])
    filter_calls(Path(FILTER).read_bytes())
    command = orders["command"]
    taken = [(os.POSIX_SPAWN_DUP2, channel.fileno(), CHANNEL)]
    runner = os.posix_spawn(command[0], command, orders["variables"], file_actions=taken)
    channel.close()
    signal.signal(signal.SIGCHLD, lambda *_: reap(runner))
    reap(runner)  # It may have ended before.
    life.recv(1)


if __name__ == "__main__":
    main()
