"""A full disk and a database that is away: refused with what to do, and nothing half kept."""

import errno
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from server.artifacts import ArtifactStore
from server.database import Database
from server.settings import Settings
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
