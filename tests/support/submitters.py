"""A server process that may be killed, and people who go on submitting until they are answered."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import orjson

from tests.support.admin import run_admin
from tests.support.processes import asking, free_port, stop, wait_for
from tests.support.trainings import trained_anew

ROOT = Path(__file__).parents[2]
# Of one address and one token come more requests here than people send.
WITHOUT_LIMITS = {
    "FINISHLINE_RATE_LIMITS": "false",
    "FINISHLINE_QUOTA_SUBMISSIONS_PER_DAY": "unlimited",
}


class ServerProcess:
    """A real server on one port, started as often as wanted."""

    def __init__(self, database_url, folder):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.artifacts = folder / "artifacts"
        self._log = folder / "server.log"
        self.environment = (
            os.environ
            | WITHOUT_LIMITS
            | {
                "FINISHLINE_DATABASE_URL": database_url,
                "FINISHLINE_ARTIFACTS_DIR": str(self.artifacts),
            }
        )
        self._process = None

    def run_admin(self, *arguments):
        said = run_admin(self.environment, *arguments)
        assert said.code == 0, said.err
        return json.loads(said.out)

    def start(self):
        process = self.spawn()
        wait_for(lambda: self._answers(process), seconds=60, what="the server to answer")

    def spawn(self):
        """Start it; it may refuse to run."""
        command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(self.port)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--timeout-graceful-shutdown", "5", "--no-access-log"],
                env=self.environment,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self._process

    def _answers(self, process):
        assert process.poll() is None, self.log()
        return asking.get(f"{self.url}/healthz", timeout=5).status_code == 200

    def kill(self):
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=10)

    def stop(self):
        if self._process is not None:
            stop(self._process)

    def log(self):
        return self._log.read_text(errors="replace")


@dataclass
class Submitters:
    """Clients that submit one after the other, each under a key until it is acknowledged.

    `acknowledged` has the id that each key was answered with, and the hashes of its logs.
    """

    server: ServerProcess
    token: str
    claim: dict[str, object]
    logs: dict[str, bytes]
    clients: int = 8
    acknowledged: dict[str, tuple[str, set[str]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    repeated: int = 0

    def __post_init__(self):
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._submit_on, args=(number,), daemon=True)
            for number in range(self.clients)
        ]

    def start(self):
        for thread in self._threads:
            thread.start()

    def wait_for_more(self, count, *, seconds=60):
        wanted = len(self.acknowledged) + count
        wait_for(
            lambda: self.faults or len(self.acknowledged) >= wanted,
            seconds=seconds,
            what="acknowledgements",
            pause=0.01,
        )
        assert self.faults == []

    def finish(self):
        self._over.set()
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive()
        assert self.faults == []

    def _submit_on(self, number):
        made = 0
        with httpx2.Client(base_url=self.server.url, timeout=20) as client:
            while not self._over.is_set() and not self.faults:
                self._submit(client, key=f"{number}-{made}", training=made * self.clients + number)
                made += 1

    def _submit(self, client, *, key, training):
        logs = {name: trained_anew(content, training) for name, content in self.logs.items()}
        files = [("submission", ("submission.json", orjson.dumps(self.claim)))]
        files += [("logs", (name, content)) for name, content in logs.items()]
        headers = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": key}
        while not self.faults:
            try:
                answer = client.post("/api/v1/submissions", files=files, headers=headers)
            except httpx2.TransportError:
                self._over.wait(0.02)
                continue
            if answer.status_code >= 500 and answer.status_code != 500:
                self._over.wait(0.02)
                continue
            if answer.status_code != 201:
                self.faults.append(answer.text)
                return
            self.repeated += "Idempotent-Replayed" in answer.headers
            hashes = {hashlib.sha256(content).hexdigest() for content in logs.values()}
            self.acknowledged[key] = (answer.json()["id"], hashes)
            return
