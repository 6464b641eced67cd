"""How long a server takes from its start to its first answer, on a laptop's settings.

Measured: a fresh process running uvicorn, until /healthz answers; the median of seven.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx2

STARTS = 7
LIMIT_SECONDS = 1.5


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def seconds_to_first_answer(environment: dict[str, str]) -> float:
    """Start a server, wait for its first answer, stop it."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port)]
    started = time.perf_counter()
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while server.poll() is None:
            try:
                if httpx2.get(f"http://127.0.0.1:{port}/healthz").status_code == 200:
                    return time.perf_counter() - started
            except httpx2.TransportError:
                time.sleep(0.01)
        raise SystemExit("the server stopped by itself")
    finally:
        server.terminate()
        server.wait(timeout=10)


def main() -> None:
    """Print each start and the median."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "FINISHLINE_DATABASE_URL": f"sqlite:///{Path(folder) / 'finishline.db'}",
            "FINISHLINE_ARTIFACTS_DIR": str(Path(folder) / "artifacts"),
        }
        subprocess.run(
            [sys.executable, "-m", "server.admin", "migrate"],
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        times = [seconds_to_first_answer(environment) for _ in range(STARTS)]
    print("starts (s):", " ".join(f"{seconds:.2f}" for seconds in times))
    print(f"median {statistics.median(times):.2f} s (at most {LIMIT_SECONDS} s is wanted)")


if __name__ == "__main__":
    main()
