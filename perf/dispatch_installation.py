"""PostgreSQL, Redis, a server and workers as processes of their own, for perf/dispatch.py."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

from finishline.cli.up.services import broker_executable
from perf.servers import Server, environment_of, make_tokens, running_database, running_server
from server.base.database import Database
from tests.support.processes import free_port, stop, wait_for

HARDWARE_CLASS = "cpu-perf"
WORKER = str(Path(__file__).with_name("dispatch_worker.py"))
# The worker is the organiser's own: nobody has to train its runs again.
PEOPLE = {"ada": "submitter", "olivia": "organiser", "will": "worker"}


@dataclass
class Installation:
    """A server that answers, its database and broker, and workers that are started later."""

    folder: Path
    server: Server
    database: Database
    environment: dict[str, str]
    tokens: dict[str, str]
    workers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start_worker(self, name: str) -> None:
        """Start a worker that says hello under this name, and confirm it."""
        own = {
            "FINISHLINE_SERVER_URL": self.server.url,
            "FINISHLINE_WORKER_TOKEN": self.tokens["will"],
            "FINISHLINE_WORKER_NAME": name,
            "FINISHLINE_HARDWARE_CLASS": HARDWARE_CLASS,
            "FINISHLINE_MEASURE": "off",
            "FINISHLINE_PERF_NOTES": str(self.folder / f"{name}.notes"),
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            environment = self.environment | own
            command = [sys.executable, WORKER]
            self.workers.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        address = f"{self.server.url}/api/v1/workers/{name}"
        wait_for(lambda: httpx2.get(address).is_success, seconds=20, what=f"hello of {name}")
        # The server confirms the second by itself: it is another of one owner on the same machine.
        if httpx2.get(address).json()["worker"]["confirmed_at"] is None:
            self.post(f"/workers/{name}/confirm", by="olivia", json={})

    def worker(self) -> psutil.Process:
        """The first worker."""
        return psutil.Process(self.workers[0].pid)

    def post(self, path: str, *, by: str, **request: Any) -> Any:
        """The JSON of a request of somebody."""
        headers = {"Authorization": f"Bearer {self.tokens[by]}"}
        address = f"{self.server.url}/api/v1{path}"
        answer = httpx2.post(address, headers=headers, timeout=60, **request)
        if not answer.is_success:
            raise SystemExit(f"dispatch: {path}: {answer.text}")
        return answer.json()

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        answer = httpx2.get(f"{self.server.url}/api/v1{path}", timeout=60)
        answer.raise_for_status()
        return answer.json()


@contextlib.contextmanager
def installed(folder: Path, *, benchmarks_dir: Path) -> Iterator[Installation]:
    """An installation; everything of it ends with the block."""
    with running_database("postgresql", folder) as url, running_redis(folder) as broker:
        settings = {
            "FINISHLINE_BROKER_URL": broker,
            "FINISHLINE_BENCHMARKS_DIR": str(benchmarks_dir),
        }
        environment = environment_of(url, folder, **settings)
        tokens = make_tokens(url, PEOPLE)
        with running_server(environment) as server:
            made = Installation(folder, server, Database(url), environment, tokens)
            try:
                yield made
            finally:
                for worker in made.workers:
                    stop(worker)
                made.database.close()


@contextlib.contextmanager
def running_redis(folder: Path) -> Iterator[str]:
    """The address of a broker that keeps nothing."""
    port = free_port()
    command = [broker_executable(), "--port", str(port), "--bind", "127.0.0.1"]
    broker = subprocess.Popen(
        [*command, "--save", "", "--dir", str(folder)],
        env=os.environ,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        stop(broker)
