"""Logs that were handed in before: refused to whose they are, marked where they are not."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.database import Database
from server.dependencies import Parts
from server.models import Submission
from server.rescoring.service import Choice, rescore_submissions
from server.submissions import earlier_logs
from tests.server.test_copies import other_seeds
from tests.support.statements import statements_of

Edit = Callable[[dict[str, bytes]], dict[str, bytes]]


def place_on_board(client: TestClient, submission_id: str) -> tuple[int | None, str | None]:
    board = client.get("/api/v1/leaderboards/digits").json()["entries"]
    (entry,) = (each for each in board if each["submission_id"] == submission_id)
    return entry["rank"], entry["unranked_reason"]


def withdraw(client: TestClient, submission_id: str, by: Any) -> None:
    answer = client.post(
        f"/api/v1/submissions/{submission_id}/withdrawal",
        json={"reason": "a wrong model"},
        headers=by.headers,
    )
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("edit", [dict, other_seeds])
def test_ones_own_logs_under_another_claim_are_refused_naming_submission_and_files(
    edit: Edit,
    submit: Callable[..., Any],
    digits_submission: Any,
    row_counts: Callable[[], Any],
    stored_files: Callable[[], Any],
) -> None:
    first = submit(digits_submission, as_is=True).json()["id"]
    before = row_counts(), stored_files()
    digits_submission.logs = edit(digits_submission.logs)
    digits_submission.claim["model"] = "a net of my own"
    digits_submission.claim["system"]["hardware_class"] = "gpu-of-my-own"
    refused = submit(digits_submission, as_is=True)

    assert refused.status_code == 409
    problems = refused.json()["problems"]
    assert [each["file"] for each in problems] == ["run_0.log", "run_1.log", "run_2.log"]
    assert all(f"{each['file']} of submission {first}" in each["message"] for each in problems)
    assert (row_counts(), stored_files()) == before


def test_one_log_of_an_earlier_submission_is_enough(
    submit: Callable[..., Any], digits_submission: Any, make_log: Callable[..., bytes]
) -> None:
    submit(digits_submission, as_is=True)
    for index in (0, 2):
        name = f"run_{index}.log"
        digits_submission.logs[name] = make_log(300 + index, name=name)
    refused = submit(digits_submission, as_is=True)

    assert refused.status_code == 409
    assert [each["file"] for each in refused.json()["problems"]] == ["run_1.log"]


def test_a_claim_is_put_right_by_withdrawing_it_first(
    submit: Callable[..., Any], digits_submission: Any, client: TestClient, alice: Any
) -> None:
    first = submit(digits_submission, as_is=True).json()["id"]
    withdraw(client, first, alice)
    digits_submission.claim["model"] = "its right name"
    second = submit(digits_submission, as_is=True)

    assert second.status_code == 201
    assert second.json()["copies"] == []
    assert place_on_board(client, second.json()["id"]) == (1, None)


@pytest.mark.parametrize("edit", [dict, other_seeds])
def test_a_copy_by_somebody_else_does_not_take_the_logs_from_whose_they_are(
    edit: Edit, submit: Callable[..., Any], digits_submission: Any, client: TestClient,
    alice: Any, bob: Any,
) -> None:  # fmt: skip
    """Logs are public: bob copies alice's before she puts her claim right."""
    own = dict(digits_submission.logs)
    first = submit(digits_submission, as_is=True).json()["id"]
    digits_submission.logs = edit(own)
    copied = submit(digits_submission, by=bob, as_is=True).json()["id"]
    withdraw(client, first, alice)
    digits_submission.logs = own
    second = submit(digits_submission, as_is=True)

    assert second.status_code == 201
    assert second.json()["copies"] == []
    assert place_on_board(client, second.json()["id"]) == (1, None)
    assert place_on_board(client, copied) == (None, "its logs were handed in before")
    parts: Parts = client.app.state.parts  # type: ignore[attr-defined]
    assert rescore_submissions(parts, Choice(), print).changed == []


@pytest.mark.parametrize("ended_by", ["alice", "olivia"])
def test_logs_withdrawn_from_under_a_replay_are_drawn_no_other_seeds(
    ended_by: str, replay: Any, submit: Callable[..., Any], digits_submission: Any,
    client: TestClient, alice: Any, olivia: Any,
) -> None:  # fmt: skip
    """Whoever watches a replay go badly is not given another; an organiser's end is nobody's."""
    replay.claim()
    if ended_by == "olivia":
        cancelled = f"/api/v1/verifications/{replay.verification_id}/cancel"
        client.post(cancelled, headers=olivia.headers).raise_for_status()
    withdraw(client, replay.submission_id, alice)
    again = submit(digits_submission, as_is=True)

    assert again.status_code == (409 if ended_by == "alice" else 201)
    if ended_by == "alice":
        assert replay.submission_id in again.json()["detail"]


def test_another_benchmark_may_have_the_same_logs(
    submit: Callable[..., Any], digits_submission: Any, database: Database
) -> None:
    first = submit(digits_submission, as_is=True).json()["id"]
    with database.write() as session:
        session.get_one(Submission, first).benchmark_id = "cifar10"

    assert submit(digits_submission, as_is=True).status_code == 201


@pytest.mark.parametrize("edit", [dict, other_seeds])
def test_somebody_elses_logs_are_taken_and_marked_at_once(
    edit: Edit, submit: Callable[..., Any], digits_submission: Any, client: TestClient, bob: Any
) -> None:
    first = submit(digits_submission, as_is=True).json()["id"]
    digits_submission.logs = edit(digits_submission.logs)
    copied = submit(digits_submission, by=bob, as_is=True)

    assert copied.status_code == 201
    view = copied.json()
    same = "bytes" if edit is dict else "training"
    assert view["copies"][1] == {
        "file": "run_1.log",
        "same": same,
        "submission_id": first,
        "submission_file": "run_1.log",
    }
    assert view["result"]["violations"] == []
    assert place_on_board(client, first)[0] == 1
    assert place_on_board(client, view["id"]) == (None, "its logs were handed in before")
    page = client.get(f"/submissions/{view['id']}").text
    assert "these trainings were handed in before" in page
    assert f'href="/submissions/{first}"' in page
    assert "handed in before" not in client.get(f"/submissions/{first}").text


def test_handing_in_and_withdrawing_often_hides_no_copy(
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    bob: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(earlier_logs, "MOST_CANDIDATES", 3)  # The runs of one submission.
    first = submit(digits_submission, as_is=True).json()["id"]
    for _ in range(2):
        copied = submit(digits_submission, by=bob, as_is=True).json()
        withdraw(client, copied["id"], bob)

        assert {copy["submission_id"] for copy in copied["copies"]} == {first}
        assert copied["result"]["eligible"] is False


def test_what_is_under_embargo_is_not_named_to_who_copied_it(
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    database: Database,
    bob: Any,
) -> None:
    first = submit(digits_submission, as_is=True).json()["id"]
    with database.write() as session:
        session.get_one(Submission, first).embargoed = True
    copied = submit(digits_submission, by=bob, as_is=True)

    assert copied.json()["copies"][0]["submission_id"] is None
    page = client.get(f"/submissions/{copied.json()['id']}", headers=bob.headers).text
    assert "under embargo" in page
    assert first not in copied.text + page


def test_an_archive_keeps_its_rank_and_tells_of_the_same_logs(
    submit: Callable[..., Any], digits_submission: Any, client: TestClient, olivia: Any
) -> None:
    digits_submission.form = {"archive": "true"}
    first = submit(digits_submission, by=olivia, as_is=True).json()["id"]
    digits_submission.claim["system"]["name"] = "its twin"
    twin = submit(digits_submission, by=olivia, as_is=True).json()

    assert {copy["submission_id"] for copy in twin["copies"]} == {first}
    assert twin["result"]["eligible"] is True
    assert place_on_board(client, twin["id"])[0] == 1
    assert "Logs that another result has." in client.get(f"/submissions/{twin['id']}").text


def test_an_archive_names_nothing_that_is_under_embargo_even_of_who_imports_it(
    submit: Callable[..., Any], digits_submission: Any, database: Database, olivia: Any
) -> None:
    first = submit(digits_submission, by=olivia, as_is=True).json()["id"]
    with database.write() as session:
        session.get_one(Submission, first).embargoed = True
    digits_submission.form = {"archive": "true"}
    archive = submit(digits_submission, by=olivia, as_is=True)

    assert [copy["submission_id"] for copy in archive.json()["copies"]] == [None] * 3
    assert first not in archive.text


def test_once_an_organiser_withdrew_the_thiefs_scoring_again_ranks_the_others(
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    bob: Any,
    olivia: Any,
) -> None:
    parts: Parts = client.app.state.parts  # type: ignore[attr-defined]
    stolen = submit(digits_submission, by=bob, as_is=True).json()["id"]
    own = submit(digits_submission, as_is=True).json()["id"]
    unchanged = rescore_submissions(parts, Choice(), print)
    withdraw(client, stolen, olivia)
    summary = rescore_submissions(parts, Choice(), print)

    assert unchanged.changed == []
    (changed,) = summary.changed
    assert changed.id == own
    assert {change.field for change in changed.changes} == {"copies", "eligible"}
    assert place_on_board(client, own) == (1, None)
    assert client.get(f"/api/v1/submissions/{own}").json()["copies"] == []


def test_earlier_logs_are_found_by_indexes_alone(
    submit: Callable[..., Any], digits_submission: Any, bob: Any, database: Database
) -> None:
    """However many submissions the benchmark has, none is looked at but those with such a log."""
    with statements_of(database, lambda text: text.startswith("SELECT runs.")) as sent:
        submit(digits_submission, by=bob, as_is=True)
        assert len(sent) == 1  # With no log in common nothing else is asked for.
        sent.clear()
        submit(digits_submission, as_is=True)

    with database.engine.connect() as connection:
        plans = [
            connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {each}", each.parameters).all()
            for each in sent
        ]
    steps = [str(row[3]) for plan in plans for row in plan]
    assert len(plans) == 3  # Which are alike, whose they are, since when the own are there.
    assert [step for step in steps if step.startswith("SCAN")] == [], steps
    assert any("ix_runs_log_sha256" in step for step in steps), steps
    assert any("ix_runs_training_sha256" in step for step in steps), steps
    assert [step for step in steps if " submissions " in step] == [
        "SEARCH submissions USING INDEX sqlite_autoindex_submissions_1 (id=?)"
    ] * 2


def test_what_was_withdrawn_comes_back_only_while_its_logs_stand_in_no_other(
    submit: Callable[..., Any], digits_submission: Any, client: TestClient, alice: Any, olivia: Any
) -> None:
    first = submit(digits_submission, as_is=True).json()["id"]
    withdraw(client, first, alice)
    second = submit(digits_submission, as_is=True).json()["id"]
    back = f"/api/v1/submissions/{first}/reinstatement"
    reason = {"reason": "it was right after all"}

    refused = client.post(back, json=reason, headers=olivia.headers)

    assert refused.status_code == 409
    assert second in refused.json()["detail"]
    assert client.get(f"/api/v1/submissions/{first}").json()["withdrawal"] is not None
    withdraw(client, second, alice)
    assert client.post(back, json=reason, headers=olivia.headers).status_code == 200
