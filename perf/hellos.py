"""Sign-ons of a worker on SQLite: `python -m perf.hellos [--rounds 5] [--connections 16]`.

Starts one server process, without rate limits, and loads it over loopback. Exit code 1 below 100
sign-ons a second.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import orjson

from finishline.rules.verification.messages import WORKER_PROTOCOL, WorkerHello, WorkerSystem
from perf.harness import Bars
from perf.servers import (
    Load,
    Server,
    cpu_seconds,
    environment_of,
    make_tokens,
    put_load,
    running_database,
    running_server,
)

WANTED_A_SECOND = 100.0
SYSTEM = WorkerSystem(
    worker="walter",
    hardware_class="cpu-perf",
    processor="any",
    processor_count=2,
    memory_gib=24.0,
    accelerator=None,
    accelerator_count=0,
    threads=1,
    software={"python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6"},
)


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=16)
    asked = parser.parse_args()
    bars = Bars("hellos")
    with tempfile.TemporaryDirectory() as name, running_database("sqlite", Path(name)) as url:
        token = make_tokens(url, {"will": "worker"})["will"]
        with running_server(environment_of(url, Path(name))) as server:
            measure(asked, bars, server, token)
    return bars.exit_code


def measure(asked: argparse.Namespace, bars: Bars, server: Server, token: str) -> None:
    """Hold the median of the rounds against the bar."""
    before = cpu_seconds(server.process)
    rates = [rate_of(asked, server, hello_of(SYSTEM, token)) for _ in range(asked.rounds)]
    each = (cpu_seconds(server.process) - before) / sum(rates) / asked.seconds
    bars.say(f"{1000 * each:.2f} ms of the server's processor time for each")
    bars.say(f"load {os.getloadavg()[0]:.1f}; {min(rates):,.0f} to {max(rates):,.0f}/s")
    bars.hold("sign-ons", statistics.median(rates), "/s", at_least=WANTED_A_SECOND)


def rate_of(asked: argparse.Namespace, server: Server, request: bytes) -> float:
    """Answers a second."""
    load = Load(request, b"200")
    load.until = time.perf_counter() + asked.seconds
    asyncio.run(put_load(server.port, load, connections=asked.connections))
    return len(load.seconds) / float(asked.seconds)


def hello_of(system: WorkerSystem, token: str) -> bytes:
    """A hello as bytes."""
    body = orjson.dumps(WorkerHello(system, "idle", protocol=WORKER_PROTOCOL))
    return (
        f"POST /api/v1/workers/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}"
        f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


if __name__ == "__main__":
    sys.exit(main())
