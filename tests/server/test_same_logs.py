"""The same log twice: 409 with a link to the submission that has it."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.base.database import Database
from server.base.models import RunRow, Submission


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_a_log_that_is_in_another_submission_is_refused_with_its_address(
    who: str,
    request: pytest.FixtureRequest,
    digits_submission: Any,
    make_log: Callable[..., bytes],
    submit: Callable[..., Any],
    row_counts: Callable[[], dict[str, int]],
) -> None:
    person = request.getfixturevalue(who)
    first = submit(digits_submission, as_is=True).json()["id"]
    before = row_counts()
    digits_submission.logs["run_0.log"] = make_log(500)
    digits_submission.logs["run_2.log"] = make_log(502, name="run_2.log")

    again = submit(digits_submission, by=person, as_is=True)

    assert again.status_code == 409
    assert f"run_1.log of submission {first} (/submissions/{first})" in again.json()["detail"]
    assert [problem["file"] for problem in again.json()["problems"]] == ["run_1.log"]
    assert row_counts() == before


def test_a_withdrawn_submission_leaves_its_logs_free(
    digits_submission: Any, submit: Callable[..., Any], client: TestClient, alice: Any
) -> None:
    first = submit(digits_submission, as_is=True).json()["id"]
    address = f"/api/v1/submissions/{first}/withdrawal"
    client.post(address, json={"reason": "the wrong system"}, headers=alice.headers)
    digits_submission.claim["notes"] = "the right one"

    assert submit(digits_submission, as_is=True).status_code == 201


def test_an_archive_may_have_what_another_has(
    digits_submission: Any, submit: Callable[..., Any], olivia: Any
) -> None:
    submit(digits_submission, as_is=True)
    digits_submission.form = {"archive": "true"}

    assert submit(digits_submission, by=olivia, as_is=True).status_code == 201


def test_a_submission_under_embargo_is_not_named(
    digits_submission: Any, submit: Callable[..., Any], database: Database, bob: Any
) -> None:
    first = submit(digits_submission, as_is=True).json()["id"]
    with database.write() as session:
        session.get_one(Submission, first).embargoed = True

    again = submit(digits_submission, by=bob, as_is=True)

    assert again.status_code == 409
    assert first not in again.text
    assert "under embargo" in again.json()["detail"]


def test_the_look_for_a_log_uses_its_index(database: Database) -> None:
    statement = select(RunRow.id).where(RunRow.log_sha256.in_(["a", "b"]))
    with database.read() as session:
        plan = session.connection().exec_driver_sql(
            "EXPLAIN QUERY PLAN "
            + str(statement.compile(session.connection(), compile_kwargs={"literal_binds": True}))
        )
        assert "ix_runs_log_sha256" in str(plan.all())
