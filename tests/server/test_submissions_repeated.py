"""One Idempotency-Key, one submission."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.server.conftest import Replay, without_place


def test_the_same_request_under_one_key_is_stored_once(
    digits_submission: Any, submit: Callable[..., Any], row_counts: Callable[[], Any]
) -> None:
    first = submit(digits_submission, key="key-1")
    counts = row_counts()
    second = submit(digits_submission, key="key-1")

    assert (first.status_code, second.status_code) == (201, 201)
    assert without_place(second.json()) == first.json()
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert row_counts() == counts


def test_another_request_under_one_key_is_409_and_leaves_nothing(
    digits_submission: Any,
    submit: Callable[..., Any],
    row_counts: Callable[[], Any],
    stored_files: Callable[[], list[str]],
    make_log: Callable[..., bytes],
) -> None:
    first = submit(digits_submission, key="key-1").json()
    before = row_counts(), stored_files()
    digits_submission.logs["run_0.log"] = make_log(999)
    refused = submit(digits_submission, key="key-1")

    assert refused.status_code == 409
    assert first["id"] in refused.json()["detail"]
    assert (row_counts(), stored_files()) == before


def test_a_key_belongs_to_its_user(
    digits_submission: Any, submit: Callable[..., Any], make_log: Callable[..., bytes], bob: Any
) -> None:
    by_alice = submit(digits_submission, key="key-1").json()
    logs = enumerate(digits_submission.logs)
    digits_submission.logs = {name: make_log(200 + index, name=name) for index, name in logs}
    by_bob = submit(digits_submission, by=bob, key="key-1").json()

    assert by_alice["id"] != by_bob["id"]
    assert by_bob["submitter"] == "bob"


def test_a_refused_request_does_not_use_up_its_key(
    digits_submission: Any, submit: Callable[..., Any]
) -> None:
    good = digits_submission.logs["run_0.log"]
    digits_submission.logs["run_0.log"] = b""
    assert submit(digits_submission, key="key-1").status_code == 422

    digits_submission.logs["run_0.log"] = good
    assert submit(digits_submission, key="key-1").status_code == 201


def test_without_a_key_the_same_request_is_refused_naming_the_submission_it_made(
    digits_submission: Any, submit: Callable[..., Any]
) -> None:
    first = submit(digits_submission, as_is=True).json()
    again = submit(digits_submission, as_is=True)

    assert again.status_code == 409
    assert first["id"] in again.json()["detail"]


def test_two_requests_under_one_key_at_once_make_one_submission(
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    stored_files: Callable[[], list[str]],
) -> None:
    barrier = threading.Barrier(4)
    answers: list[Any] = []

    def send() -> None:
        barrier.wait(timeout=10)
        answers.append(submit(digits_submission, key="key-1"))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 3
    assert len(client.get("/api/v1/submissions").json()["submissions"]) == 1
    assert not [path for path in stored_files() if path.startswith("incoming/")]


@pytest.mark.parametrize("key", [" ", "k" * 201, "tab\there"])
def test_a_key_that_is_none_is_422(
    key: str, digits_submission: Any, submit: Callable[..., Any], stored_files: Callable[[], Any]
) -> None:
    response = submit(digits_submission, key=key)

    assert response.status_code == 422
    assert "Idempotency-Key" in response.json()["detail"]
    assert stored_files() == []


def test_the_same_request_after_its_verdicts_is_answered_with_them(
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    database: Any,
    olivia: Any,
    walter: Any,
    make_report: Callable[..., Any],
) -> None:
    submission_id = submit(digits_submission, key="key-1").json()["id"]
    for reason in ("the first verdict is published", "the second waits"):
        asked = client.post(
            f"/api/v1/submissions/{submission_id}/verifications",
            headers=olivia.headers,
            json={"reason": reason},
        )
        replay = Replay(client, database, walter, submission_id, asked.json()["id"])
        replay.report(replay.claim().json(), make_report(replay.seeds()))

    again = submit(digits_submission, key="key-1")

    assert again.status_code == 201
    assert again.json() == client.get(f"/api/v1/submissions/{submission_id}").json()
    assert again.json()["published_verification"] is not None
    assert len(again.json()["pending_decisions"]) == 1
