"""GET /healthz."""

from importlib.metadata import version

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from server.database import Database


def test_a_process_that_answers_is_alive_whatever_its_database_does(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Database, *_viewer: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr(Database, "read", away)
    response = client.get("/healthz")

    assert response.status_code == 200
    assert response.json() == {"status": "ok", "version": version("finishline")}
