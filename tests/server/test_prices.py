"""The price book on both databases: added to by organisers, read by everybody, never changed."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from tests.support.both_databases import database_url, on_sqlite  # noqa: F401

PRICES = "/api/v1/prices"
BODY = {
    "provider": "cloud", "instance": "gpu.8", "region": "north", "usd_per_hour": 12.5,
    "effective_on": "2026-03-01", "source_url": "https://cloud.example/prices",
}  # fmt: skip
HOSTILE = '=<script>alert("x")</script>'


@pytest.fixture
def add(client, olivia):
    def post(**changes):
        answer = client.post(PRICES, json=BODY | changes, headers=olivia.headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    return post


def numbers(client, **query):
    answer = client.get(PRICES, params=query)
    assert answer.status_code == 200, answer.text
    return [price["id"] for price in answer.json()["prices"]]


def test_prices_are_added_listed_and_superseded_and_each_is_logged(client, olivia, add):
    assert numbers(client) == []
    first = add()
    later = add(effective_on="2026-06-01", usd_per_hour=11.0)
    spot = add(pricing="spot", usd_per_hour=4.0)
    wrong = add(instance="gpu.4", usd_per_hour=1e6)
    right = add(instance="gpu.4", usd_per_hour=6.0, supersedes=wrong["id"], note="a typing error")

    assert (first["ranks"], spot["ranks"], first["added_by"]) == (True, False, "olivia")
    listed = {price["id"]: price for price in client.get(PRICES).json()["prices"]}
    order = [right, wrong, later, first, spot]
    assert list(listed) == [price["id"] for price in order]
    assert listed[wrong["id"]]["superseded_by"] == right["id"]
    assert [listed[price["id"]]["ranks"] for price in (wrong, right)] == [False, True]
    assert numbers(client, instance="gpu.8", pricing="spot") == [spot["id"]]
    assert numbers(client, on="2026-05-31") == [right["id"], first["id"]]
    assert numbers(client, on="2026-06-01", instance="gpu.8") == [later["id"]]
    assert numbers(client, on="2026-02-28") == []
    records = client.get("/api/v1/audit", headers=olivia.headers).json()["records"]
    assert [(r["action"], r["subject_id"]) for r in records] == [
        ("price.add", str(number)) for number in (5, 4, 3, 2, 1)
    ]
    assert (records[0]["reason"], records[0]["after"]["supersedes"]) == ("a typing error", 4)


def test_no_price_is_ever_changed_or_taken_out(client, olivia, add, database):
    wrong = add()["id"]
    for statement in ("UPDATE prices SET usd_per_hour = 1", "DELETE FROM prices"):
        with pytest.raises(DatabaseError, match="only ever added to"), database.write() as session:
            session.execute(text(statement))
    for method in ("put", "patch", "delete"):
        answer = getattr(client, method)(f"{PRICES}/{wrong}", headers=olivia.headers)
        assert answer.status_code in (404, 405)
    add(usd_per_hour=1.0, supersedes=wrong)
    for changes, status in (
        ({"usd_per_hour": 2.0, "supersedes": wrong}, 409),  # It has a successor already.
        ({"usd_per_hour": 1.0, "supersedes": wrong}, 409),
        ({}, 409),
        ({"supersedes": 99}, 404),
    ):
        answer = client.post(PRICES, json=BODY | changes, headers=olivia.headers)
        assert answer.status_code == status, answer.text
    assert numbers(client) == [2, 1]


def test_an_import_adds_all_or_nothing_and_repeating_it_adds_nothing(client, olivia, row_counts):
    rows = [BODY, BODY | {"region": "south"}]

    def post(prices):
        body = {"prices": prices}
        return client.post(f"{PRICES}/import", json=body, headers=olivia.headers)

    before = row_counts()
    assert post([*rows, BODY | {"supersedes": 9}]).status_code == 404
    assert post([*rows, BODY | {"usd_per_hour": 0}]).status_code == 422
    assert row_counts() == before
    view = post(rows).json()
    assert ([p["region"] for p in view["added"]], view["already_there"]) == (["north", "south"], 0)
    again = post([*rows, rows[0]]).json()
    assert (again["added"], again["already_there"]) == ([], 3)
    (record,) = client.get("/api/v1/audit", headers=olivia.headers).json()["records"]
    first, last = (price["id"] for price in view["added"])
    assert (record["action"], record["subject_id"]) == ("price.import", f"{first}-{last}")
    assert record["after"]["prices"][str(last)]["region"] == "south"


@on_sqlite
def test_a_bad_price_is_422_and_names_its_field(client, olivia, row_counts):
    before = row_counts()
    for field, value in (
        ("usd_per_hour", 0), ("usd_per_hour", "NaN"), ("usd_per_hour", 1e9), ("provider", " "),
        ("instance", "a\tb"), ("region", "x" * 101), ("pricing", "free"), ("more", 1),
        ("effective_on", "soon"), ("source_url", "javascript:alert(1)"), ("supersedes", 2**31),
        ("note", ""), ("accelerator", "H100"), ("hardware_class", "A class"),
    ):  # fmt: skip
        answer = client.post(PRICES, json=BODY | {field: value}, headers=olivia.headers)
        assert answer.status_code == 422, (field, value)
        assert field in answer.json()["detail"]
        assert "Value error" not in answer.text
    for query in ({"on": "soon"}, {"sort": "x"}):
        assert client.get(PRICES, params=query).status_code == 422, query
    assert row_counts() == before


@on_sqlite
def test_the_book_is_a_page(client, add):
    page = client.get("/prices").text
    assert "Boards rank by time until" in page
    add(provider=HOSTILE, note=HOSTILE)
    add(instance="gpu.4", pricing="spot")
    page = client.get("/prices").text

    assert "spot, never ranks" in page
    assert '<a href="https://cloud.example/prices" rel="nofollow noopener">' in page
    assert "gpu.8" not in client.get("/prices", params={"instance": "gpu.4"}).text
    # Fields of the form that are left empty ask for nothing.
    assert "gpu.4" in client.get("/prices?provider=&instance=&region=&pricing=&on=").text
    assert client.get("/prices", params={"on": "soon"}).status_code == 422
