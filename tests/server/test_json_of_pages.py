"""A page of a thing is JSON at the same address, as the API has it."""

import pytest

from tests.support.boards import rows_of
from tests.support.pages import BROWSER

JSON = {"Accept": "application/json"}


@pytest.fixture
def submitted(digits_submission, submit):
    return submit(digits_submission).json()["id"]


def pages(submitted):
    return {
        f"/submissions/{submitted}": f"/api/v1/submissions/{submitted}",
        "/submissions": "/api/v1/submissions",
        "/benchmarks/digits": "/api/v1/leaderboards/digits",
        "/benchmarks/digits/ideas": "/api/v1/benchmarks/digits/ideas",
        "/calibrations": "/api/v1/calibrations",
        "/workers": "/api/v1/workers",
    }


def test_a_page_is_json_where_json_is_asked_for(submitted, client):
    for page, address in pages(submitted).items():
        wanted = client.get(address)
        assert wanted.status_code == 200, address
        assert client.get(page, headers=JSON).json() == wanted.json(), page
        assert client.get(f"{page}.json").json() == wanted.json(), page


def test_a_browser_gets_the_page_and_a_cache_keeps_both_apart(submitted, client):
    for page in pages(submitted):
        answer = client.get(page, headers=BROWSER)
        assert answer.headers["content-type"].startswith("text/html"), page
        assert "Accept" in answer.headers["vary"].split(", "), page


def test_the_filters_of_a_page_are_those_of_its_json(submitted, client):
    assert rows_of(client.get("/benchmarks/digits.json?division=open").json()) == []
    assert client.get("/submissions.json?limit=1").json()["submissions"][0]["id"] == submitted


def test_a_page_without_such_an_address_in_the_api_stays_a_page(client):
    assert client.get("/docs", headers=JSON).headers["content-type"].startswith("text/html")
    assert client.get("/docs.json").status_code == 404
    assert client.get("/submissions/unknown", headers=JSON).status_code == 404
