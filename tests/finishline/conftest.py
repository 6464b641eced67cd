"""A server that listens on a port, and a submission on disk."""

import json
import threading

import pytest
import uvicorn

from tests.server.conftest import (  # noqa: F401  The fixtures of a server with a database.
    alice,
    client,
    database,
    database_url,
    digits_submission,
    make_log,
    make_person,
    migrated_file,
    olivia,
    settings,
    sqlite_database,
    sqlite_url,
    submit,
    walter,
)  # fmt: skip
from tests.support.processes import wait_for


@pytest.fixture(autouse=True)
def _nobody_by_default(monkeypatch):
    for name in ("FINISHLINE_URL", "FINISHLINE_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site(client):
    config = uvicorn.Config(client.app, port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started, seconds=60.0, what="the server to listen", pause=0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=10)


@pytest.fixture
def folder(tmp_path, digits_submission):
    """Three honest digits runs, as `finishline run` leaves them."""
    made = tmp_path / "mine"
    made.mkdir()
    (made / "submission.json").write_text(json.dumps(digits_submission.claim))
    for name, content in digits_submission.logs.items():
        (made / name).write_bytes(content)
    return made
