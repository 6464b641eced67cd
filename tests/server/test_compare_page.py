"""The page that holds submissions side by side, and what it says when it cannot."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database
from server.base.models import Submission
from tests.support.pages import BROWSER, HOSTILE, words_of


@pytest.fixture(autouse=True)
def read_as_owner(client: TestClient, alice: Any) -> None:
    """Send alice's token where a test sends no other: strangers see no run of a claim as yet."""
    client.headers.update(alice.headers)


@pytest.fixture
def two(
    digits_submission: Any, submit: Callable[..., Any], make_log: Callable[..., bytes]
) -> list[str]:
    """A submission by somebody hostile, and one of another batch size, three times as slow."""
    digits_submission.claim |= {"model": HOSTILE}
    ids = [submit(digits_submission).json()["id"]]
    digits_submission.claim |= {"model": "slower", "hyperparameters": {"batch_size": 32}}
    for index, name in enumerate(digits_submission.logs):
        pace = 0.33 + index * 0.002
        digits_submission.logs[name] = make_log(
            200 + index, name=name, seconds_per_epoch=pace, batch_size=32
        )
    return [*ids, submit(digits_submission).json()["id"]]


def test_two_submissions_stand_side_by_side_with_what_differs_and_who_is_faster(
    two: list[str], client: TestClient
) -> None:
    address = f"/compare?ids={two[0]},{two[1]}"
    answer = client.get(address, headers=BROWSER)
    words = words_of(answer.text)

    assert answer.status_code == 200
    assert "A is significantly faster than B" in words
    assert "batch_size differs 64 32 0.500 × A" in words
    assert "Hardware class same" in words
    assert "than B" in words
    assert "The board may tell the same two apart or not: it counts other tests" in words
    assert "<script>alert" not in answer.text
    assert 'style="' not in answer.text
    assert f'href="/api/v1/compare?submissions={two[0]}%2C{two[1]}"' in answer.text
    different = words_of(client.get(address + "&rows=different", headers=BROWSER).text)
    assert "batch_size differs" in different
    assert "Hardware class same" not in different
    for chart in ("curves", "times"):
        figure = client.get(f"/compare/charts/{chart}.json?ids={two[0]},{two[1]}").json()
        assert {trace["meta"].get("series") for trace in figure["data"]} >= {0, 1}
        assert "<script" not in str(figure)


def test_beside_each_one_stands_how_it_is_known(
    two: list[str], client: TestClient, database: Database
) -> None:
    known = (("claimed", "epochs_agree"), ("measured", None))
    for submission_id, (evidence, check) in zip(two, known, strict=True):
        with database.write() as session:
            submission = session.get_one(Submission, submission_id)
            submission.evidence, submission.check_word = evidence, check
    page = client.get(f"/compare?ids={two[0]},{two[1]}", headers=BROWSER).text
    sides = page.split('class="sides"')[1].split("</ol>")[0]

    first, second = (words_of(each) for each in sides.split("</li>")[:2])
    assert "claimed · epochs agree" in first
    assert "measured" in second


def test_what_a_form_sends_leads_to_one_address(two: list[str], client: TestClient) -> None:
    pasted = f"http://testserver/submissions/{two[1]}/"
    answer = client.get(
        "/compare", params={"ids": [two[0], "", pasted, two[0]]}, follow_redirects=False
    )
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/compare?ids={two[0]},{two[1]}"


def test_one_submission_is_offered_the_others_of_its_board(
    two: list[str], client: TestClient
) -> None:
    page = client.get(f"/compare?ids={two[1]}", headers=BROWSER).text
    assert f'<option value="{two[0]}">' in page
    assert f'<option value="{two[1]}">' not in page
    assert f'<input type="hidden" name="ids" value="{two[1]}">' in page
    assert client.get("/compare").status_code == 200


def test_what_cannot_be_compared_is_a_page_that_says_what_to_do(
    two: list[str],
    digits_submission: Any,
    submit: Callable[..., Any],
    client: TestClient,
    database: Database,
) -> None:
    def page(*ids: str) -> tuple[int, str, str]:
        answer = client.get(f"/compare?ids={','.join(ids)}", headers=BROWSER)
        assert "<script>alert" not in answer.text
        return answer.status_code, words_of(answer.text), answer.text

    status, words, text = page(two[0], HOSTILE)
    assert (status, "There is no submission" in words) == (404, True)
    assert f'href="/compare?ids={two[0]}"' in text

    more = [submit(digits_submission).json()["id"] for _ in range(5)]
    status, words, _ = page(*two, *more)
    assert (status, "These are 7 submissions; at most 6" in words) == (422, True)

    with database.write() as session:
        session.get_one(Submission, more[0]).benchmark_id = "cifar10"
    status, words, _ = page(two[1], more[0])
    assert (status, "submissions of cifar10 and digits" in words) == (422, True)
    assert client.get(f"/compare/charts/curves.json?ids={two[0]}").status_code == 422
