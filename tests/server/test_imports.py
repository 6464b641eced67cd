"""A server is small and starts fast: what it must not load, and that it answers."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from server.base.settings import Settings

LIMIT_SECONDS = 30.0  # Only a start that hangs is caught; what makes one long is LATER.
FOREIGN = (
    "torch",
    "sklearn",
    "worker",
    "reference_models",
    "finishline.cli",
    "finishline.client",
    "torchvision",
    "pandas",
)
# What some requests need, or some servers: each would make every start longer.
LATER = (
    "alembic", "boto3", "botocore", "celery", "fsspec", "httpcore2", "httpx2", "kombu",
    "markdown_it", "numpy", "plotly", "pyarrow", "redis", "scipy",
)  # fmt: skip


def test_importing_the_server_loads_no_torch_no_worker_and_nothing_for_later() -> None:
    script = (
        "import json, sys, time; start = time.perf_counter(); import server.app; "
        "seconds = time.perf_counter() - start; "
        "names = {'.'.join(name.split('.')[:depth]) for name in sys.modules for depth in (1, 2)}; "
        "print(json.dumps([seconds, sorted(names)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    seconds, loaded = json.loads(done.stdout)

    assert set(FOREIGN).isdisjoint(loaded)
    assert set(LATER).intersection(loaded) == set()
    assert "fastapi" in loaded
    assert seconds < LIMIT_SECONDS


@pytest.mark.processes
def test_a_server_process_answers_soon_and_stops_when_told(settings: Settings) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "FINISHLINE_DATABASE_URL": settings.database_url,
        "FINISHLINE_ARTIFACTS_DIR": str(settings.artifacts_dir),
        "FINISHLINE_BROKER_URL": "redis://127.0.0.1:1/0",  # Nobody is there, and nobody waits.
    }
    started = time.monotonic()
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port)],
        env=environment,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        answer = _first_answer(server, f"http://127.0.0.1:{port}/healthz", started + LIMIT_SECONDS)
        seconds = time.monotonic() - started
        print(f"import and start: {seconds:.2f} s")
        assert answer.json()["status"] == "ok"
        assert seconds < LIMIT_SECONDS
    finally:
        server.terminate()
        code = server.wait(timeout=15)
    assert code in (0, -15)


def _first_answer(
    server: "subprocess.Popen[bytes]", address: str, deadline: float
) -> httpx2.Response:
    while time.monotonic() < deadline:
        assert server.poll() is None, "the server has ended"
        try:
            return httpx2.get(address, timeout=2.0)
        except httpx2.TransportError:
            time.sleep(0.05)
    raise AssertionError("no answer in time")
