"""A client that openapi-python-client makes from this server's description of its API.

FINISHLINE_CLIENT_GENERATOR names the generator; `make test-client` installs it and runs this.
"""

import json
import re
import shutil
import subprocess
from os import environ
from pathlib import Path

import pytest

from tests.support.build import Replay

PROGRAM = Path(__file__).parents[2] / "support" / "use_generated_client.py"
VERB_AND_NOUN = re.compile("[a-z]+(_[a-z0-9]+)+")


def run(command, **environment):
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False,
        env=dict(environ) | environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_ids_of_operations_and_names_of_schemas_are_short(client):
    schema = client.get("/openapi.json").json()
    ids = [each["operationId"] for item in schema["paths"].values() for each in item.values()]

    assert len(set(ids)) == len(ids) > 100
    assert not [name for name in ids if len(name) > 40 or not VERB_AND_NOUN.fullmatch(name)]
    assert not [name for name in schema["components"]["schemas"] if "__" in name]


@pytest.mark.nightly
def test_a_generated_client_submits_is_verified_and_reads_its_verdict(
    client, address, alice, walter, database, digits_submission, make_report, tmp_path
):
    found = environ.get("FINISHLINE_CLIENT_GENERATOR") or shutil.which("openapi-python-client")
    if found is None:
        pytest.skip("no openapi-python-client: make test-client installs it")
    schema = client.get("/openapi.json").json()
    (tmp_path / "openapi.json").write_text(json.dumps(schema))
    made = tmp_path / "made"
    path = f"{Path(found).parent}:{environ['PATH']}"  # It calls ruff.
    command = [found, "generate", "--path", tmp_path / "openapi.json", "--output-path", made]
    told = run(command, PATH=path)

    assert "arning" not in told
    assert "rror" not in told
    package = made / "finishline_client"
    operations = sum(len(item) for item in schema["paths"].values())
    modules = [path for path in package.glob("api/*/*.py") if path.name != "__init__.py"]
    assert len(modules) == operations
    models = set((package / "models" / "__init__.py").read_text().split('"'))
    assert set(schema["components"]["schemas"]) <= models

    folder = tmp_path / "claim"
    folder.mkdir()
    (folder / "submission.json").write_text(json.dumps(digits_submission.claim))
    for name, log in digits_submission.logs.items():
        (folder / name).write_bytes(log)
    python = Path(found).parent / "python"  # of the environment that has the client's packages

    def ask(*words):
        return json.loads(run([python, PROGRAM, *words], PYTHONPATH=str(made)))

    submission_id, asked, about, state = ask("submit", address, alice.secret, folder)
    assert (about, state) == (submission_id, "queued")
    worker = Replay(client, database, walter, submission_id, asked)
    worker.report(worker.claim().json(), make_report(worker.seeds()))
    state, outcome, reasons, board = ask("read", address, asked)
    assert (state, outcome) == ("done", "verified")
    assert "within_band" in reasons
    assert [row[1] for row in board] == [submission_id]
