"""Lists ask the database as often for four items as for one."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, insert, select, update

from server.base.board_versions import raise_board_version
from server.base.database import Database
from server.base.models import RunRow, Submission
from tests.support.statements import statements_of

BOARD = "/api/v1/leaderboards/digits"


@pytest.fixture
def count_rows(database: Database) -> Callable[[], int]:
    """How many rows SQLite has given to this process until then."""
    given = 0

    def noted(_cursor: Any, row: Any) -> Any:
        nonlocal given
        given += 1
        return row

    @event.listens_for(database.engine, "connect")
    def count(connection: Any, _record: Any) -> None:
        connection.row_factory = noted

    database.engine.dispose()
    return lambda: given


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
    database: Database,
) -> None:
    client.get(path)  # The first read of a process asks for more than what changed.
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    with statements_of(database) as for_one:
        assert client.get(path).status_code == 200
    for _ in range(3):
        replay.submission_id = submit(digits_submission).json()["id"]
        address = f"/api/v1/submissions/{replay.submission_id}/verifications"
        asked = client.post(address, headers=olivia.headers).json()
        replay.verification_id = asked["id"]
        replay.report(replay.claim().json(), make_report(replay.seeds()))
    with statements_of(database) as for_four:
        assert client.get(path).status_code == 200

    assert len(for_four) == len(for_one), "\n".join(for_four)


def test_a_submission_takes_two_transactions_and_a_dozen_statements(
    digits_submission: Any, submit: Callable[..., Any], database: Database
) -> None:
    assert submit(digits_submission).status_code == 201
    with statements_of(database) as sent:
        assert submit(digits_submission).status_code == 201

    # The token, then in one transaction: the hardware class, the user, quotas and their use,
    # phases, the definition, the submission, its runs, the board's version and change, the same
    # logs, who listens.
    assert [text for text in sent if text.startswith("BEGIN")] == ["BEGIN", "BEGIN IMMEDIATE"]
    assert len(sent) - 2 == 13


def test_a_read_after_a_write_costs_the_same_on_a_small_board_and_on_a_large_one(
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    database: Database,
    count_rows: Callable[[], int],
) -> None:
    sent = submit(digits_submission).json()["id"]
    costs = {}
    for number in (300, 900):
        fill(database, sent, number)
        client.get(BOARD)
        with database.write() as session:
            session.execute(update(Submission).where(Submission.id == sent).values(model="x"))
            raise_board_version(session, "digits", submission_id=sent)
        rows = count_rows()
        with statements_of(database) as after_write:
            assert '"model":"x"' in client.get(BOARD).text
        costs[number] = len(after_write), count_rows() - rows
        with statements_of(database) as again:
            assert client.get(BOARD, headers={"Accept-Encoding": "gzip"}).status_code == 200
        assert [text for text in again if text != "BEGIN"][1:] == []
        with statements_of(database) as fresh:
            for _ in range(3):
                client.get(BOARD)
        assert fresh == []

    assert costs[300] == costs[900]
    statements, fetched = costs[900]
    assert statements <= 10  # Versions, what changed, how it stands, its details.
    assert fetched < 20  # What changed, whatever the size of the board.


def fill(database: Database, like: str, count: int) -> None:
    """So many submissions more, faster than one that was sent, of a run each."""
    with database.write() as session:
        row = session.get(Submission, like)
        columns = {c.key: getattr(row, c.key) for c in Submission.__table__.c}
        run = session.scalars(select(RunRow).where(RunRow.submission_id == like)).first()
        of_run = {c.key: getattr(run, c.key) for c in RunRow.__table__.c if c.key != "id"}
        ids = [f"f{count}-{number}" for number in range(count)]
        own = {"idempotency_key": None, "eligible": True, "status": "claimed"}
        session.execute(
            insert(Submission),
            [columns | own | {"id": name, "tta_seconds": 10.0 + n} for n, name in enumerate(ids)],
        )
        for index in (0, 1):
            session.execute(
                insert(RunRow),
                [of_run | {"submission_id": name, "index": index} for name in ids],
            )
        raise_board_version(session, "digits")


def test_curves_and_reports_are_read_only_where_they_are_shown(
    replay: Any,
    client: TestClient,
    make_report: Callable[..., Any],
    database: Database,
) -> None:
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    with statements_of(database) as sent:
        client.get("/api/v1/submissions")
        client.get("/api/v1/verifications")

    assert not [s for s in sent if "runs.curve" in s or "verifications.report" in s]


def test_the_first_page_asks_for_little_of_each_benchmark(
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    database: Database,
    claims_are_numbered: None,
) -> None:
    sent = submit(digits_submission).json()["id"]
    with statements_of(database) as of_a_fresh_process:
        assert f"/submissions/{sent}" in client.get("/").text
    of_boards = [
        text for text in of_a_fresh_process if "submissions" in text and "FROM verif" not in text
    ]
    # How many there are, which may hold records, their runs and times, and whose the record is.
    assert len(of_boards) <= 6, "\n".join(of_boards)
    assert not any("FILTER" in text for text in of_boards), "counting tries costs most"
