"""One key and one log for one submission."""

import pytest

from server.base.models import Submission
from tests.server.conftest import without_place
from tests.support.build import ask_for_replay
from tests.support.statements import statements_of


def test_the_same_request_under_one_key_is_stored_once(digits_submission, submit, row_counts):
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
    digits_submission, submit, row_counts, stored_files, make_log
):
    first = submit(digits_submission, key="key-1").json()
    before = row_counts(), stored_files()
    digits_submission.logs["run_0.log"] = make_log(999)
    refused = submit(digits_submission, key="key-1")

    assert refused.status_code == 409
    assert first["id"] in refused.json()["detail"]
    assert (row_counts(), stored_files()) == before


def test_a_key_belongs_to_its_user(digits_submission, submit, make_log, bob):
    by_alice = submit(digits_submission, key="key-1").json()
    logs = enumerate(digits_submission.logs)
    digits_submission.logs = {name: make_log(200 + index, name=name) for index, name in logs}
    by_bob = submit(digits_submission, by=bob, key="key-1").json()

    assert by_alice["id"] != by_bob["id"]
    assert by_bob["submitter"] == "bob"


def test_a_refused_request_does_not_use_up_its_key(digits_submission, submit):
    good = digits_submission.logs["run_0.log"]
    digits_submission.logs["run_0.log"] = b""
    assert submit(digits_submission, key="key-1").status_code == 422

    digits_submission.logs["run_0.log"] = good
    assert submit(digits_submission, key="key-1").status_code == 201


@pytest.mark.parametrize("key", [" ", "k" * 201, "tab\there"])
def test_a_key_that_is_none_is_422(key, digits_submission, submit, stored_files):
    response = submit(digits_submission, key=key)

    assert response.status_code == 422
    assert "Idempotency-Key" in response.json()["detail"]
    assert stored_files() == []


def test_the_same_request_after_its_verdicts_is_answered_with_them(
    digits_submission, submit, client, database, olivia, walter, make_report
):
    submission_id = submit(digits_submission, key="key-1").json()["id"]
    for _ in ("the first verdict is published", "the second waits"):
        replay = ask_for_replay(client, database, submission_id, by=olivia, worker=walter)
        replay.report(replay.claim().json(), make_report(replay.seeds()))

    again = submit(digits_submission, key="key-1")

    assert again.status_code == 201
    assert again.json() == client.get(f"/api/v1/submissions/{submission_id}").json()
    assert again.json()["published_verification"] is not None
    assert len(again.json()["pending_decisions"]) == 1


@pytest.mark.parametrize("who", ["alice", "bob"])
def test_a_log_that_is_in_another_submission_is_refused_with_its_address(
    who, request, digits_submission, make_log, submit, row_counts
):
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


def test_a_withdrawn_submission_leaves_its_logs_free_and_an_archive_may_have_them(
    digits_submission, submit, client, alice, olivia
):
    first = submit(digits_submission, as_is=True).json()["id"]
    address = f"/api/v1/submissions/{first}/withdrawal"
    client.post(address, json={"reason": "the wrong system"}, headers=alice.headers)
    digits_submission.claim["notes"] = "the right one"

    assert submit(digits_submission, as_is=True).status_code == 201
    digits_submission.form = {"archive": "true"}
    assert submit(digits_submission, by=olivia, as_is=True).status_code == 201


def test_a_submission_under_embargo_is_not_named(digits_submission, submit, database, bob):
    first = submit(digits_submission, as_is=True).json()["id"]
    with database.write() as session:
        session.get_one(Submission, first).embargoed = True

    again = submit(digits_submission, by=bob, as_is=True)

    assert again.status_code == 409
    assert first not in again.text
    assert "under embargo" in again.json()["detail"]


def test_a_submission_looks_up_its_logs_by_hash_alone(digits_submission, submit, database):
    """However many submissions the benchmark has: others wait for this transaction."""
    with statements_of(database, lambda text: "log_sha256 IN" in text) as sent:
        assert submit(digits_submission).status_code == 201

    (asked,) = sent
    with database.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {asked}", asked.parameters).all()
    assert [str(row[3]).split(" (")[0] for row in plan] == [
        "SEARCH runs USING INDEX ix_runs_log_sha256"
    ]
