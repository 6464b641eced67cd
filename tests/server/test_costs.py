"""Costs from the price book: computed with each answer, so a corrected price corrects them."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from fastapi.testclient import TestClient

pytestmark = pytest.mark.usefixtures("claims_are_numbered")

BOARD = "/api/v1/leaderboards/digits"
CLOUD = {"provider": "cloud", "instance": "gpu.8", "region": "north", "count": 2}


@pytest.fixture
def add_price(client: TestClient, olivia: Any) -> Callable[..., int]:
    """Adds to the price book as olivia; the number of the entry."""

    def add(usd: float, starts: str, **others: Any) -> int:
        names = {name: CLOUD[name] for name in ("provider", "instance", "region")}
        page = {"source_url": "https://cloud.example/prices"}
        body = names | page | {"usd_per_hour": usd, "effective_on": starts} | others
        answer = client.post("/api/v1/prices", json=body, headers=olivia.headers)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    return add


@pytest.fixture
def rented(digits_submission: Any, submit: Callable[..., Any]) -> Callable[..., Any]:
    """Submits runs made on two rented instances for 0.1 USD an hour, as stated; the answer."""

    def send(**system: Any) -> Any:
        parts = deepcopy(digits_submission)
        parts.claim["system"] |= {"cloud": CLOUD} | system
        answer = submit(parts)
        assert answer.status_code == 201, answer.text
        return answer.json()

    return send


def entry_of(client: TestClient, submission_id: str, **query: str) -> Any:
    answer = client.get(BOARD, params=query)
    assert answer.status_code == 200, answer.text
    return next(e for e in answer.json()["entries"] if e["submission_id"] == submission_id)


def test_a_price_of_the_book_prices_what_was_sent_before_and_a_correction_corrects_it(
    client: TestClient, rented: Callable[..., Any], add_price: Callable[..., int]
) -> None:
    sent = rented()
    hours = sent["result"]["tta_seconds"] / 3600
    stated = entry_of(client, sent["id"])
    assert (stated["cost_usd"], stated["cost_price"]) == (pytest.approx(hours * 0.1), None)
    assert sent["result"]["cost_basis"]["source"] == "claim"

    wrong = add_price(500.0, "2026-01-01")
    assert entry_of(client, sent["id"])["cost_usd"] == pytest.approx(hours * 1000.0)
    right = add_price(5.0, "2026-01-01", supersedes=wrong)

    entry = entry_of(client, sent["id"])
    assert (entry["cost_usd"], entry["cost_price"]) == (pytest.approx(hours * 10.0), right)
    shown = client.get(f"/api/v1/submissions/{sent['id']}").json()["result"]
    assert shown["cost_usd"] == entry["cost_usd"]
    basis = shown["cost_basis"]
    assert (basis["price"], basis["count"], basis["usd_per_hour"]) == (right, 2, 10.0)
    assert basis["source_url"] == "https://cloud.example/prices"
    step = next(step for step in shown["steps"] if step["name"] == "cost to accuracy")
    assert (step["value"], step["numbers"]["price (USD/h)"]) == (entry["cost_usd"], 10.0)
    page = client.get(f"/submissions/{sent['id']}").text
    assert f"/prices#price-{right}" in page
    assert "2 × gpu.8" in page


def test_a_spot_price_never_ranks_in_a_claim_or_in_the_book(
    client: TestClient, rented: Callable[..., Any], add_price: Callable[..., int]
) -> None:
    sent = rented(pricing="spot")
    add_price(0.01, "2026-01-01", pricing="spot")

    entry = entry_of(client, sent["id"], metric="cost")
    assert (entry["cost_usd"], entry["rank"]) == (None, None)
    assert "a spot price never ranks" in client.get(f"/submissions/{sent['id']}").text


def test_a_board_may_be_asked_for_at_the_prices_of_a_day(
    client: TestClient, rented: Callable[..., Any], add_price: Callable[..., int]
) -> None:
    sent = rented()
    hours = sent["result"]["tta_seconds"] / 3600
    add_price(8.0, "2020-01-01")
    later = add_price(1.0, "2999-01-01")

    assert entry_of(client, sent["id"])["cost_usd"] == pytest.approx(hours * 16.0)
    dear = entry_of(client, sent["id"], prices_on="2999-06-01")
    assert (dear["cost_usd"], dear["cost_price"]) == (pytest.approx(hours * 2.0), later)
    before = entry_of(client, sent["id"], prices_on="2019-12-31")
    assert (before["cost_usd"], before["cost_price"]) == (pytest.approx(hours * 0.1), None)

    board = client.get(BOARD, params={"prices_on": "2999-06-01"}).json()
    assert board["price"]["prices_on"] == "2999-06-01"
    page = client.get("/benchmarks/digits", params={"prices_on": "2999-06-01"}).text
    assert board["price"]["note"].split(":")[0] in page
    csv = client.get(f"{BOARD}.csv", params={"prices_on": "2999-06-01"}).text
    assert "2999-06-01" in csv
    both = client.get(BOARD, params={"prices_on": "2026-06-01", "price": "2"})
    assert both.status_code == 422
    assert client.get(BOARD, params={"prices_on": "June"}).status_code == 422
