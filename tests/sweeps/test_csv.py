"""Each table in CSV has the rows and fields of the same address in JSON."""

import csv
import io

import pytest

from tests.support import boards
from tests.support.addresses import readable

pytestmark = pytest.mark.timeout(240)
BOARD = "/api/v1/leaderboards/{benchmark_id}"
QUERIES = (
    "", "metric=cost", "metric=latency", "division=open", "withdrawn=show", "target=95", "price=2",
    "clock=speedrun", "sort=tta&order=desc", "round=archive", "evidence=measured", "limit=1",
    "prices_on=2026-06-01",
)  # fmt: skip
# The fields of a row that are tables, of which CSV has parts.
TABLES = {"tta_display", "rcp", "tuning", "source"}
FORMULAS = ("=", "+", "-", "@")


def rows_of(client, address):
    """The rows of a table in CSV and of the same address in JSON."""
    answers = client.get(address), client.get(address.replace(".csv", ""))
    assert [each.status_code for each in answers] == [200, 200], address
    assert answers[0].headers["content-type"] == "text/csv; charset=utf-8"
    text = answers[0].content.decode()
    return list(csv.DictReader(io.StringIO(text, newline=""))), answers[1].json()


def cell(value):
    """What CSV has for a value. A spreadsheet runs no text."""
    if isinstance(value, list):
        value = "; ".join(
            f"{x['rule']}: {x['reason']}" if isinstance(x, dict) else x for x in value
        )
    text = "" if value is None else str(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULAS) else text


def flat(board, entry):
    """The fields of a row of a board by the columns of its table."""
    parts = {"rcp": entry["rcp"], "tuning": entry["tuning"], "what_if": board["what_if"]}
    row = {f"{name}_{key}": part[key] for name, part in parts.items() for key in part or ()}
    price, system = board["price"] or {}, entry["system"]
    row |= {name: system[name] for name in ("hardware_class", "accelerator", "accelerator_count")}
    row["price_usd_per_accelerator_hour"] = price.get("usd_per_accelerator_hour")
    return entry | row | {"prices_on": price.get("prices_on"), "system": system["name"]}


@pytest.mark.parametrize("benchmark", ["benchmark_id", "own_benchmark"])
@pytest.mark.parametrize("query", QUERIES)
def test_board_is_the_same_in_csv(query, benchmark, hostile):
    path = BOARD.format(benchmark_id=hostile.known[benchmark])
    rows, board = rows_of(hostile.client, f"{path}.csv?{query}")

    entries = boards.rows_of(board)
    assert len(rows) == len(entries)
    for row, entry in zip(rows, entries, strict=True):
        fields = flat(board, entry)
        assert entry.keys() - row.keys() == TABLES
        assert row == {name: cell(fields.get(name)) for name in row}
    assert query or rows or benchmark == "own_benchmark"


def test_price_book_is_the_same_in_csv(hostile):
    rows, book = rows_of(hostile.client, "/api/v1/prices.csv")

    assert len(rows) > 1
    assert rows == [{name: cell(price[name]) for name in price} for price in book["prices"]]


def test_every_table_is_asked_for(hostile):
    tables = {path for path in readable(hostile.client) if path.endswith(".csv")}
    assert tables == {f"{BOARD}.csv", "/api/v1/prices.csv"}


def test_no_cell_is_a_formula(hostile):
    for path in (BOARD.format(**hostile.known), "/api/v1/prices"):
        rows, _ = rows_of(hostile.client, f"{path}.csv")
        texts = [text for row in rows for text in row.values()]
        assert sum(text.startswith("'=1+1") for text in texts) >= 2
        assert not [text for text in texts if text.startswith(FORMULAS) and not is_number(text)]


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True
