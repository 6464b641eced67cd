"""The real thing: `finishline up` with its server, Redis, Celery worker and real training."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from tests.support.processes import asking, free_port, wait_for

READY_SECONDS = 240.0  # Seven commands one after the other, on a machine that may be busy.
# A busy machine posts and answers late: the server's clock allows for it.
ENVIRONMENT = {"FINISHLINE_CLOCK_SLACK_SECONDS": "5"}


@dataclass
class Stack:
    """A running `finishline up`."""

    process: subprocess.Popen[bytes]
    url: str
    var: Path

    def token(self, name: str) -> str:
        """A token that `up` made."""
        return (self.var / "tokens" / f"{name}.token").read_text().strip()

    def get(self, path: str) -> Any:
        """The JSON at a path of the API."""
        answer = asking.get(f"{self.url}/api/v1{path}", timeout=10.0)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def verify(self, submission_id: str) -> str:
        """Ask for a verification; its id."""
        answer = asking.post(
            f"{self.url}/api/v1/submissions/{submission_id}/verifications",
            headers={"Authorization": f"Bearer {self.token('organiser')}"},
            json={"reason": "test"},
            timeout=10.0,
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def cancel(self, verification_id: str) -> None:
        """Cancel a verification."""
        answer = asking.post(
            f"{self.url}/api/v1/verifications/{verification_id}/cancel",
            headers={"Authorization": f"Bearer {self.token('organiser')}"},
            timeout=10.0,
        )
        assert answer.status_code == 200, answer.text

    def wait_until_ended(self, verification_id: str, *, seconds: float = 400.0) -> Any:
        """The verification once it has ended."""

        def ended() -> Any:
            view = self.get(f"/verifications/{verification_id}")
            return view if view["state"] in ("done", "failed", "cancelled") else None

        return wait_for(ended, seconds=seconds, what=f"the end of {verification_id}", pause=0.3)

    def children(self, *words: str) -> list[psutil.Process]:
        """The processes under `up` whose command line has all these words."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                line = " ".join(child.cmdline())
            except psutil.Error:
                continue
            if all(word in line for word in words):
                found.append(child)
        return found


def run_cli(*arguments: str, env: dict[str, str] | None = None) -> Any:
    """Run the `finishline` command with --json; what it printed, parsed."""
    done = subprocess.run(
        [sys.executable, "-m", "finishline.cli.main", *arguments, "--json"],
        capture_output=True,
        env=os.environ | (env or {}),
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """`finishline up`, ready, with one worker; stopped by SIGTERM at the end."""
    var = tmp_path_factory.mktemp("up") / "var"
    port = free_port()
    log = (var.parent / "up.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "finishline.cli.main", "up", "--port", str(port), "--var", str(var)],
        env=os.environ | ENVIRONMENT,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    made = Stack(process=process, url=f"http://127.0.0.1:{port}", var=var)
    try:
        wait_for(lambda: _is_ready(made), seconds=READY_SECONDS, what="finishline up to be ready")
        yield made
        left = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        _gone, alive = psutil.wait_procs(left, timeout=5)
        assert alive == [], "processes were left behind"
    finally:
        if process.poll() is None:
            process.kill()
        log.close()


def _is_ready(stack: Stack) -> bool:
    assert stack.process.poll() is None, (stack.var.parent / "up.log").read_text()
    try:
        return any(
            worker["alive"] and worker["confirmed_at"]
            for worker in stack.get("/workers")["workers"]
        )
    except httpx2.HTTPError:
        return False


@pytest.fixture
def submit(stack: Stack) -> Callable[[Path], Any]:
    """Sends a folder to the stack as its demo submitter; the submission as the server shows it.

    The same folder sent again is the same submission.
    """

    def send(folder: Path) -> Any:
        access = ("--url", stack.url, "--token", stack.token("demo"))
        return run_cli("submit", str(folder), *access)

    return send
