"""Whose logs a claim's are: told at its verdict, by bytes and by curve and timing."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from server.database import Database
from server.models import Submission


@pytest.fixture
def verdict_after(
    submit: Callable[..., Any],
    digits_submission: Any,
    request: pytest.FixtureRequest,
    make_report: Callable[..., Any],
    database: Database,
) -> Callable[..., Any]:
    """Alice's submission is verified after somebody's own; the view of her verification."""

    def build(first: Any, logs: dict[str, bytes], *, is_hidden: bool = False) -> Any:
        own, digits_submission.logs = digits_submission.logs, logs
        earlier = submit(digits_submission, by=first, as_is=True)
        assert earlier.status_code == 201, earlier.text
        with database.write() as session:
            session.get_one(Submission, earlier.json()["id"]).embargoed = is_hidden
        digits_submission.logs = own
        replay = request.getfixturevalue("replay")
        replay.report(replay.claim().json(), make_report(replay.seeds()))
        return earlier.json()["id"], replay.view()

    return build


def other_seeds(logs: dict[str, bytes]) -> dict[str, bytes]:
    """The same trainings, each line written anew, under seeds of their own."""
    changed = {}
    for name, content in logs.items():
        lines = [orjson.loads(line.partition(b"MLLOG")[2]) for line in content.splitlines()]
        for line in lines:
            if line["key"] == "seed":
                line["value"] += 5000
        changed[name] = b"".join(b"0: :::MLLOG " + orjson.dumps(line) + b"\n" for line in lines)
    return changed


@pytest.mark.parametrize("edit", [dict, other_seeds])
def test_logs_that_bob_handed_in_before_leave_alices_verdict_open(
    verdict_after: Callable[..., Any],
    bob: Any,
    digits_submission: Any,
    edit: Callable[[dict[str, bytes]], dict[str, bytes]],
) -> None:
    submission_id, view = verdict_after(bob, edit(digits_submission.logs))

    copied = [r for r in view["reasons"] if r["code"] == "log_of_another_submission"]
    assert view["outcome"] == "inconclusive"
    assert [reason["weight"] for reason in copied] == ["leaves_open"] * 3
    assert f"run_0.log is run_0.log of submission {submission_id}" in copied[0]["message"]


def test_a_copy_of_what_is_under_embargo_is_found_and_the_other_not_named(
    verdict_after: Callable[..., Any], bob: Any, digits_submission: Any
) -> None:
    submission_id, view = verdict_after(bob, digits_submission.logs, is_hidden=True)

    assert "log_of_another_submission" in {reason["code"] for reason in view["reasons"]}
    told = orjson.dumps(view["reasons"]).decode()
    assert "under embargo" in told
    assert submission_id not in told


def test_trainings_that_only_end_alike_are_no_copies(
    verdict_after: Callable[..., Any], bob: Any, make_log: Callable[..., bytes]
) -> None:
    logs = {
        f"run_{i}.log": make_log(200 + i, name=f"run_{i}.log", seconds_per_epoch=0.2 + i / 100)
        for i in range(3)
    }

    _, view = verdict_after(bob, logs)

    assert view["outcome"] == "verified"
