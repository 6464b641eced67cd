"""GET /healthz."""

from importlib.metadata import version
from pathlib import Path

from fastapi.testclient import TestClient

from server.database import Database


def test_a_server_that_works_says_so(client: TestClient) -> None:
    response = client.get("/healthz")

    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "version": version("finishline"),
        "database": "ok",
        "broker": "not tried yet",
    }


def test_a_server_without_its_database_is_503(
    client: TestClient, database: Database, tmp_path: Path
) -> None:
    database.engine.dispose()
    for path in tmp_path.glob("finishline.db*"):
        path.unlink()
    (tmp_path / "finishline.db").mkdir()
    response = client.get("/healthz")

    assert response.status_code == 503
    assert response.json()["status"] == "failing"
    assert response.json()["database"] == "unreachable"
