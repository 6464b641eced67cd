"""A full disk and a database that is away: refused with what to do, and nothing half kept."""

import errno
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from psycopg.errors import DiskFull
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InternalError, OperationalError, ProgrammingError

import server.app
from server.app import create_app
from server.base.artifacts import ArtifactStore
from server.base.database import Database
from server.base.settings import Settings
from server.people.accounts import create_token
from tests.server.conftest import Person, SubmissionParts, list_stored_files


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_refuses_a_submission_and_keeps_nothing_of_it(
    number: int,
    digits_submission: SubmissionParts,
    submit: Callable[..., Any],
    client: TestClient,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(number, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(ArtifactStore, "keep", no_room)
        refused = submit(digits_submission, key="once")

    assert (refused.status_code, refused.json()["title"]) == (507, "Insufficient storage")
    assert refused.headers["Retry-After"] == "60"
    assert "nothing of this request was kept" in refused.json()["detail"]
    assert list_stored_files(settings) == []
    assert client.get("/api/v1/leaderboards/digits").json()["entries"] == []
    assert submit(digits_submission, key="once").status_code == 201


def test_a_database_that_is_away_is_told_with_when_to_ask_again(
    client: TestClient, olivia: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Database, *_viewer: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr(Database, "read", away)

    answer = client.get("/api/v1/verifications", headers=olivia.headers)

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "database" in answer.json()["detail"]


def test_a_database_without_room_is_a_full_disk(
    client: TestClient, olivia: Person, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    if database.is_sqlite:
        with database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
            with pytest.raises(OperationalError) as caught:
                connection.exec_driver_sql("CREATE TABLE filler AS SELECT zeroblob(9000000) AS x")
        cause: object = caught.value.orig
    else:
        cause = DiskFull("could not extend file")

    def full(_: Database, *_viewer: object) -> None:
        raise OperationalError("INSERT", {}, cause)

    monkeypatch.setattr(Database, "read", full)

    answer = client.get("/api/v1/verifications", headers=olivia.headers)

    assert (answer.status_code, answer.json()["title"]) == (507, "Insufficient storage")
    assert answer.headers["Retry-After"] == "60"
    assert "disk is full" in answer.json()["detail"]


def test_another_fault_of_the_machine_is_no_full_disk(
    digits_submission: SubmissionParts,
    settings: Settings,
    submit: Callable[..., Any],
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "a broken disk")

    client.raise_server_exceptions = False
    client._transport.raise_server_exceptions = False  # type: ignore[attr-defined]
    monkeypatch.setattr(ArtifactStore, "keep", broken)

    assert submit(digits_submission).status_code == 500


@pytest.mark.parametrize(
    ("error", "sqlstate", "status"),
    [
        (InternalError, "25006", 503),  # read_only_sql_transaction: a standby.
        (ProgrammingError, "42P01", 503),  # undefined_table: a failover to an empty database.
        (ProgrammingError, "42601", 500),  # syntax_error: a mistake of ours.
    ],
)
def test_another_database_than_is_needed_is_one_line_and_no_mistake_of_the_server(
    error: type[DBAPIError],
    sqlstate: str,
    status: int,
    client: TestClient,
    olivia: Person,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cause = Exception("cannot execute UPDATE in a read-only transaction")
    cause.sqlstate = sqlstate  # type: ignore[attr-defined]

    def refuse(_: Database, *_viewer: object) -> None:
        raise error("UPDATE", {}, cause)

    monkeypatch.setattr(Database, "read", refuse)
    answer = client.get("/api/v1/verifications", headers=olivia.headers)
    (line,) = [line for line in caplog.records if line.name == "server.base.error_answers"]

    assert answer.status_code == status
    if status == 503:
        assert answer.headers["Retry-After"] == "1"
        assert "read-only transaction" in line.getMessage()
        assert line.exc_info is None
    else:
        assert line.exc_info is not None


@pytest.mark.usefixtures("shown_claims")
def test_a_log_that_is_lost_is_told_by_its_hash_and_in_one_line(
    digits_submission: SubmissionParts,
    submit: Callable[..., Any],
    client: TestClient,
    alice: Any,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = f"/api/v1/submissions/{submit(digits_submission).json()['id']}"
    client.headers.update(alice.headers)  # The logs of a claim are its owner's to read.
    sha256 = client.get(address).json()["runs"][1]["log_sha256"]
    (settings.artifacts_dir / sha256[:2] / sha256).unlink()
    answer = client.get(f"{address}/runs/1/log")
    (line,) = [line for line in caplog.records if line.name == "server.base.error_answers"]

    assert (answer.status_code, answer.json()["title"]) == (500, "Lost file")
    assert sha256 in answer.json()["detail"]
    assert sha256 in line.getMessage()
    assert line.exc_info is None


@pytest.mark.processes
def test_a_table_that_somebody_holds_refuses_and_is_not_waited_for(
    postgresql_url: str,
    settings: Settings,
    digits_submission: SubmissionParts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server.app, "LOCK_SECONDS", 0.2)
    database = Database(postgresql_url)
    with database.write() as session:
        token = create_token(session, user_name="alice", role="submitter", expires_in=None)
    app = create_app(settings.model_copy(update={"database_url": postgresql_url}), dispatch=False)

    def send() -> Any:
        return client.post(
            "/api/v1/submissions",
            files=digits_submission.files(),
            headers={"Authorization": f"Bearer {token.secret}", "Idempotency-Key": "once"},
        )

    with TestClient(app) as client:
        with database.write() as holder:
            holder.execute(text("LOCK TABLE submissions IN ACCESS EXCLUSIVE MODE"))
            refused = send(), client.get("/api/v1/submissions")
        taken = send()
    database.close()

    for answer in refused:
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert taken.status_code == 201
