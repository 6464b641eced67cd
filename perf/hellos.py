"""Hellos of workers that say nothing new, against GET /healthz, on SQLite.

`python -m perf.hellos [--rounds 5] [--connections 16]` starts one server process on SQLite, without
rate limits, and loads it over loopback with hellos and with health checks in turns. The bar is in
answers a second, which neighbours on the machine slow down for both. Exit code 1 below the bar.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import orjson

from finishline.rules.verification.messages import WorkerHello, WorkerSystem
from perf.board_reads import Load, put_load, request_for
from perf.harness import Bars, in_turn
from perf.servers import Server, environment_of, make_tokens, running_database, running_server

WANTED_RATIO = 0.3
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
    """Answers a second of both, in turns."""
    cases = {
        "healthz": partial(rate_of, asked, server, request_for("/healthz")),
        "hellos": partial(rate_of, asked, server, hello_of(SYSTEM, token)),
    }
    rates = in_turn(cases, asked.rounds, warm=True)
    ratios = [a / b for a, b in zip(rates["hellos"], rates["healthz"], strict=True)]
    for kind, found in rates.items():
        bars.say(f"{kind} {statistics.median(found):,.0f}/s, {asked.connections} connections")
    bars.say(f"load {os.getloadavg()[0]:.1f}; ratios {min(ratios):.2f} to {max(ratios):.2f}")
    bars.hold("hellos / GET healthz", statistics.median(ratios), at_least=WANTED_RATIO)


def rate_of(asked: argparse.Namespace, server: Server, request: bytes) -> float:
    """Answers a second."""
    load = Load(request, b"200")
    load.until = time.perf_counter() + asked.seconds
    asyncio.run(put_load(server.port, load, connections=asked.connections))
    return len(load.seconds) / float(asked.seconds)


def hello_of(system: WorkerSystem, token: str) -> bytes:
    """A hello as bytes."""
    body = orjson.dumps(WorkerHello(system, "idle"))
    return (
        f"POST /api/v1/workers/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}"
        f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


if __name__ == "__main__":
    sys.exit(main())
