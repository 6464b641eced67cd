"""POST /api/v1/rescore, and figures that differ as its report names them."""

import pytest

from server.base.models import Submission
from server.submissions import rescoring as service
from server.submissions.rows import Change, differences

RESCORE = "/api/v1/rescore"


@pytest.fixture
def submissions(digits_submission, submit, make_log):
    """The ids of three stored digits submissions, in the order they came."""
    ids = []
    for place in range(3):
        digits_submission.logs = {
            name: make_log(100 * place + i, name=name)
            for i, name in enumerate(digits_submission.logs)
        }
        ids.append(str(submit(digits_submission).json()["id"]))
    return ids


def damage(database, *ids):
    """Change a stored figure behind the server's back."""
    with database.write() as session:
        for submission_id in ids:
            session.get_one(Submission, submission_id).tta_seconds = 0.5


def stored(database, ids):
    with database.read() as session:
        return [session.get_one(Submission, each).tta_seconds for each in ids]


def test_what_changed_is_kept_and_answered(submissions, client, database, olivia):
    (right,) = set(stored(database, submissions))
    board = client.get("/api/v1/leaderboards/digits").json()["version"]
    damage(database, submissions[1])
    answer = client.post(RESCORE, json={"benchmark": "digits"}, headers=olivia.headers)

    assert answer.status_code == 200, answer.text
    changes = [{"field": "tta_seconds", "before": 0.5, "after": right}]
    assert answer.json() == {
        "definition": "stored",
        "dry_run": False,
        "submissions": 3,
        "unchanged": 2,
        "changed": [{"id": submissions[1], "changes": changes}],
        "failed": [],
        "total": 3,
        "next_cursor": None,
    }
    assert stored(database, submissions) == [right] * 3
    assert client.get("/api/v1/leaderboards/digits").json()["version"] == board + 1


def test_a_dry_run_answers_the_same_and_changes_nothing(submissions, client, database, olivia):
    damage(database, *submissions)
    board = client.get("/api/v1/leaderboards/digits").content
    answer = client.post(RESCORE, json={"dry_run": True}, headers=olivia.headers).json()

    assert (answer["dry_run"], [each["id"] for each in answer["changed"]]) == (True, submissions)
    assert stored(database, submissions) == [0.5] * 3
    assert client.get("/api/v1/leaderboards/digits").content == board


def test_only_the_benchmark_that_is_named_is_scored_again(submissions, client, database, olivia):
    damage(database, *submissions)
    answer = client.post(RESCORE, json={"benchmark": "cifar10"}, headers=olivia.headers).json()

    assert (answer["submissions"], answer["total"], answer["next_cursor"]) == (0, 0, None)
    assert stored(database, submissions) == [0.5] * 3


def test_batches_go_through_all_once_in_the_order_they_came(submissions, client, database, olivia):
    damage(database, *submissions)
    seen, cursor = [], None
    for left in (2, 1, 0):
        body = {"limit": 1, "cursor": cursor}
        answer = client.post(RESCORE, json=body, headers=olivia.headers).json()
        cursor = answer["next_cursor"]
        seen += [each["id"] for each in answer["changed"]]
        assert (answer["submissions"], answer["total"]) == (1, 3)
        assert (cursor is None) == (left == 0)

    assert seen == submissions


def test_a_batch_ends_when_its_time_is_over_but_does_one_at_least(
    submissions, client, olivia, monkeypatch
):
    monkeypatch.setattr(service, "BATCH_SECONDS", 0.0)
    answer = client.post(RESCORE, json={}, headers=olivia.headers).json()

    assert (answer["submissions"], answer["total"]) == (1, 3)
    assert answer["next_cursor"]


def test_the_current_definition_is_used_where_asked_for(submissions, client, olivia):
    answer = client.post(RESCORE, json={"definition": "current"}, headers=olivia.headers).json()

    assert (answer["definition"], answer["unchanged"]) == ("current", 3)


def test_without_a_token_it_is_401(client):
    assert client.post(RESCORE, json={}).status_code == 401


@pytest.mark.parametrize("person", ["alice", "walter"])
def test_only_an_organiser_may(person, submissions, client, database, request):
    damage(database, *submissions)
    headers = request.getfixturevalue(person).headers
    answer = client.post(RESCORE, json={}, headers=headers)

    assert answer.status_code == 403
    assert "organiser" in answer.json()["detail"]
    assert stored(database, submissions) == [0.5] * 3


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"definition": "old"}, "body.definition"),
        ({"dryrun": True}, "body.dryrun"),
        ({"limit": 0}, "body.limit"),
        ({"limit": 201}, "body.limit"),
        ({"benchmark": 7}, "body.benchmark"),
    ],
)
def test_a_bad_body_is_422_and_changes_nothing(body, field, submissions, client, database, olivia):
    damage(database, *submissions)
    answer = client.post(RESCORE, json=body, headers=olivia.headers)

    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["problems"]] == [field]
    assert stored(database, submissions) == [0.5] * 3


def test_a_cursor_that_is_none_is_422(client, olivia):
    answer = client.post(RESCORE, json={"cursor": "x"}, headers=olivia.headers)

    assert answer.status_code == 422
    assert "cursor" in answer.json()["detail"]


def test_an_unknown_benchmark_is_404(client, olivia):
    answer = client.post(RESCORE, json={"benchmark": "mnist"}, headers=olivia.headers)

    assert answer.status_code == 404
    assert "There is no benchmark 'mnist'" in answer.json()["detail"]


def figures(**changes):
    run = {"file": "run_0.log", "curve": [[1, 2.0, 90.0, None]] * 8}
    return {"tta_seconds": 1.0, "result": {"cv_percent": 2.0}, "runs": [run]} | changes


def test_figures_that_agree_are_not_named():
    assert differences(figures(), figures()) == []


def test_a_figure_that_is_not_derived_any_more_is_named():
    before = figures(result={"cv_percent": 2.0, "old": 7})

    assert differences(before, figures()) == [Change("result.old", 7, None)]


def test_a_figure_that_is_absent_differs_from_one_that_is_none():
    after = figures(result={"cv_percent": 2.0, "fresh": None})

    assert differences(figures(), after) == [Change("result.fresh", None, None)]


def test_a_long_list_is_told_by_its_length():
    after = figures(runs=[{"file": "run_0.log", "curve": [[1, 2.0, 91.0, None]] * 3}])

    (change,) = differences(figures(), after)
    assert (change.field, change.before) == ("runs[0].curve", "8 items")
    assert change.after == [[1, 2.0, 91.0, None]] * 3
