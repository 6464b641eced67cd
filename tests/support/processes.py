"""Waiting for processes without sleeping longer than needed."""

import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import httpx2

# To make a client takes 25 ms of CPU, for certificates that servers of tests have none of. It keeps
# no connection: the next request may be to a server that was killed and started again.
asking = httpx2.Client(limits=httpx2.Limits(max_keepalive_connections=0))


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], Any], *, seconds: float, what: str, pause: float = 0.1) -> Any:
    """What `condition` returns once it is true; fails with `what` after a while.

    A server that does not answer yet counts as not true yet.
    """
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            found = condition()
        except httpx2.TransportError:
            found = None
        if found:
            return found
        time.sleep(pause)
    raise AssertionError(f"waited {seconds:.0f} s for {what}")


def stop(process: subprocess.Popen[bytes], *, seconds: float = 20.0) -> None:
    """End a process as an operator would, and the hard way if that does not help."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
