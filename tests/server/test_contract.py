"""The API keeps to its own OpenAPI document: Schemathesis asks, a real server process answers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import free_port, running_server

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "schemathesis.toml"
# A request without a token is answered 401 whatever is in it, as the examples show.
NO_MADE_UP_WRITES = """
[[operations]]
include-method = ["POST", "PUT", "PATCH", "DELETE"]
phases.coverage.enabled = false
phases.fuzzing.enabled = false
"""
# So many made-up requests, sequences of requests and limits of fields besides the examples.
EXAMPLES = int(os.environ.get("FINISHLINE_CONTRACT_EXAMPLES", "0"))
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600 if EXAMPLES else 900)]


@pytest.mark.parametrize("role", ["nobody", "admin"])
def test_answers_are_announced(role, settings, tmp_path, digits_submission, submit, make_person):
    assert submit(digits_submission).status_code == 201
    person = None if role == "nobody" else make_person("sam", role)
    names = ("database_url", "artifacts_dir", "broker_url", "benchmarks_dir")
    own = {name: getattr(settings, name) for name in names}
    with running_server(tmp_path / "server.log", free_port(), **own) as (_, address):
        ran = run_schemathesis(address, person, tmp_path)
    report = "\n".join(line[:300] for line in ran.stdout.splitlines())
    assert ran.returncode == 0, report + ran.stderr[-2_000:]


def run_schemathesis(address, person, folder):
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
