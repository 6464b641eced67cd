"""Lists ask the database as often for four items as for one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from server.database import Database


@pytest.fixture
def count_statements(database: Database) -> Callable[[], Any]:
    """Counts the statements sent within a block: `with count_statements() as sent`."""

    @contextmanager
    def counting() -> Iterator[list[str]]:
        sent: list[str] = []

        def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            sent.append(statement)

        event.listen(database.engine, "before_cursor_execute", note)
        try:
            yield sent
        finally:
            event.remove(database.engine, "before_cursor_execute", note)

    return counting


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/submissions",
        "/api/v1/verifications",
        "/api/v1/benchmarks",
        "/api/v1/leaderboards/digits",
        "/benchmarks/digits",
        "/",
    ],
)
def test_a_list_of_four_takes_as_many_statements_as_a_list_of_one(
    path: str,
    replay: Any,
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    olivia: Any,
    make_report: Callable[..., Any],
    count_statements: Callable[[], Any],
) -> None:
    client.get(path)  # The first read of a process asks for more than what changed.
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    with count_statements() as for_one:
        assert client.get(path).status_code == 200
    for _ in range(3):
        replay.submission_id = submit(digits_submission).json()["id"]
        address = f"/api/v1/submissions/{replay.submission_id}/verifications"
        asked = client.post(address, headers=olivia.headers).json()
        replay.verification_id = asked["id"]
        replay.report(replay.claim().json(), make_report(replay.seeds()))
    with count_statements() as for_four:
        assert client.get(path).status_code == 200

    assert len(for_four) == len(for_one), "\n".join(for_four)


def test_curves_and_reports_are_read_only_where_they_are_shown(
    replay: Any,
    client: TestClient,
    make_report: Callable[..., Any],
    count_statements: Callable[[], Any],
) -> None:
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    with count_statements() as sent:
        client.get("/api/v1/submissions")
        client.get("/api/v1/verifications")

    assert not [s for s in sent if "runs.curve" in s or "verifications.report" in s]
