"""`finishline rescore`: batch after batch, and a report of what changed."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

RESCORE = "POST /api/v1/rescore"
CHANGE = {"field": "tta_seconds", "before": 0.5, "after": 0.944}


def batch(**values: Any) -> dict[str, Any]:
    usual = {
        "definition": "stored",
        "dry_run": False,
        "submissions": 2,
        "unchanged": 2,
        "changed": [],
        "failed": [],
        "total": 3,
        "next_cursor": None,
    }
    return usual | values


def two_batches(standin: "StandIn") -> None:
    changed = [{"id": "sub-1", "changes": [CHANGE]}]
    standin.answer(RESCORE, batch(unchanged=1, changed=changed, next_cursor="place-2"))
    standin.answer(RESCORE, batch(submissions=1, unchanged=1))


def test_it_asks_until_the_server_has_no_more(finishline: "Finishline", standin: "StandIn") -> None:
    two_batches(standin)
    ran = finishline(
        "rescore", "--benchmark", "digits", "--definition", "current", "--dry-run",
        "--token", "fl_1", "--json",
    )  # fmt: skip

    assert ran.code == 0
    assert ran.json() == {
        "definition": "current",
        "dry_run": True,
        "submissions": 3,
        "unchanged": 2,
        "changed": [{"id": "sub-1", "changes": [CHANGE]}],
        "failed": [],
        "total": 3,
        "complete": True,
    }
    asked = {"benchmark": "digits", "dry_run": True, "definition": "current"}
    bodies = [json.loads(each.body) for each in standin.asked]
    assert bodies == [asked | {"cursor": None}, asked | {"cursor": "place-2"}]
    assert {each.headers["authorization"] for each in map(lower, standin.asked)} == {"Bearer fl_1"}


def lower(asked: Any) -> Any:
    asked.headers.update({name.lower(): value for name, value in asked.headers.items()})
    return asked


def test_people_see_submission_field_before_and_after(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    two_batches(standin)
    out = finishline("rescore").out

    assert "sub-1:\n  tta_seconds: 0.5 -> 0.944\n" in out
    assert (
        "3 of 3 submissions rescored under the stored definitions: "
        "1 changed, 2 unchanged, 0 failed." in out
    )
    two_batches(standin)
    standin.answers[RESCORE].pop(0)
    assert "1 would change" in finishline("rescore", "--dry-run").out


def test_one_that_cannot_be_scored_again_is_told_and_makes_it_fail(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    failed = [{"id": "sub-2", "error": "run_0.log cannot be read"}]
    standin.answer(RESCORE, batch(unchanged=1, failed=failed))
    ran = finishline("rescore")

    assert ran.code == 1
    assert "failed sub-2: run_0.log cannot be read" in ran.out


def test_a_server_that_fails_midway_leaves_a_report_of_what_was_done(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer(RESCORE, batch(next_cursor="place-2"))
    standin.refuse(RESCORE, 503, "broken today")
    ran = finishline("rescore")

    assert ran.code == 4
    assert "2 of 3 submissions rescored" in ran.out
    assert "The rescoring ended early" in ran.out
    assert "broken today" in ran.err


def test_without_an_organisers_token_nothing_is_reported(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.refuse(RESCORE, 403, "This needs a token of role organiser; yours is submitter.")
    ran = finishline("rescore", "--json")

    assert (ran.code, ran.out) == (5, "")
    assert ran.error()["message"] == ("This needs a token of role organiser; yours is submitter.")


def test_an_unknown_benchmark_is_not_found(finishline: "Finishline", standin: "StandIn") -> None:
    standin.refuse(RESCORE, 404, "There is no benchmark 'mnist'.")
    ran = finishline("rescore", "--benchmark", "mnist")

    assert ran.code == 6
    assert "mnist" in ran.err


def test_another_definition_is_wrong_usage(finishline: "Finishline") -> None:
    assert finishline("rescore", "--definition", "old").code == 2
