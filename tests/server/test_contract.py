"""The API keeps to its own OpenAPI document: Schemathesis asks, a real server process answers."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import asking, free_port, stop, wait_for

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "schemathesis.toml"
# A request without a token is answered 401 whatever is in it, which the examples show; the half of
# the time would go into making up bodies.
NO_MADE_UP_WRITES = """
[[operations]]
include-method = ["POST", "PUT", "PATCH", "DELETE"]
phases.coverage.enabled = false
phases.fuzzing.enabled = false
"""
# Made-up requests, requests one after the other and the limits of every field come every night: so
# many of each. For each change the examples of the document are sent.
EXAMPLES = int(os.environ.get("FINISHLINE_CONTRACT_EXAMPLES", "0"))
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600 if EXAMPLES else 900)]


@contextmanager
def running_server(settings, log):
    """A server process with these settings; its address."""
    port = free_port()
    names = ("database_url", "artifacts_dir", "broker_url", "benchmarks_dir")
    own = {f"FINISHLINE_{name.upper()}": str(getattr(settings, name)) for name in names}
    own["FINISHLINE_RATE_LIMITS"] = "false"
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port)]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env=os.environ | own, stdout=output, stderr=output, cwd=ROOT
        ) as server,
    ):
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(
                lambda: asking.get(f"{address}/healthz").is_success, seconds=60, what="a server"
            )
            yield address
        finally:
            stop(server)


@pytest.mark.parametrize("role", ["nobody", "admin"])
def test_every_answer_is_one_that_the_openapi_document_announces(
    role, settings, tmp_path, digits_submission, submit, make_person
):
    assert submit(digits_submission).status_code == 201
    person = None if role == "nobody" else make_person("sam", role)
    with running_server(settings, tmp_path / "server.log") as address:
        ran = run_schemathesis(address, person, tmp_path)
    assert ran.returncode == 0, in_short(ran.stdout) + ran.stderr[-2_000:]


def run_schemathesis(address, person, folder):
    """All its checks, with a seed of its own, so that a failure comes again."""
    headers = person.headers if person is not None else {}
    config = folder / CONFIG.name
    config.write_text(CONFIG.read_text() + ("" if person else NO_MADE_UP_WRITES))
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        f"--config-file={config}",
        "run",
        f"{address}/openapi.json",
        f"--phases={'examples,coverage,fuzzing,stateful' if EXAMPLES else 'examples'}",
        f"--max-examples={max(EXAMPLES, 1)}",
        "--seed=20261121",
        "--continue-on-failure",
        "--no-color",
        *(f"--header={name}:{value}" for name, value in headers.items()),
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def in_short(report):
    """The report with its endless bodies cut."""
    return "\n".join(line[:300] for line in report.splitlines())
