"""Waiting for processes without sleeping longer than needed."""

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import redis

from server.commands.services import broker_executable

# To make a client takes 25 ms of CPU, for certificates that servers of tests have none of. It keeps
# no connection: the next request may be to a server that was killed and started again.
asking = httpx2.Client(limits=httpx2.Limits(max_keepalive_connections=0))


# Below those that the kernel gives to connections: one of them might take the port of a server that
# is killed and started again.
PORTS = range(20_000, 32_000)


def free_port():
    """A port nobody listens on, and which no connection is given."""
    while True:
        port = random.SystemRandom().choice(PORTS)  # A test may have seeded the other one.
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for(condition, *, seconds, what, pause=0.1):
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


@contextmanager
def running_broker():
    """A broker on a unix socket, whose path is short because sockets demand it; yields the path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / "redis.sock"
        own = ["--port", "0", "--unixsocket", str(path), "--save", "", "--dir", folder]
        process = subprocess.Popen([broker_executable(), *own], stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: _answers(path), seconds=20, what="the broker", pause=0.01)
            yield path
        finally:
            stop(process)


def _answers(path):
    with redis.Redis(unix_socket_path=str(path)) as client, suppress(redis.ConnectionError):
        return bool(client.ping())
    return False


def stop(process, *, seconds=20.0):
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running_server(log, port, **settings):
    """A server process with these settings and no limits of rates, and its address."""
    own = {f"FINISHLINE_{name.upper()}": str(value) for name, value in settings.items()}
    own["FINISHLINE_RATE_LIMITS"] = "false"
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with (
        log.open("ab") as output,
        subprocess.Popen(command, env=os.environ | own, stdout=output, stderr=output) as server,
    ):
        try:
            wait_for(lambda: asking.get(f"{url}/healthz").is_success, seconds=60, what="a server")
            yield server, url
        finally:
            stop(server)
