"""The price book from the command line."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

PRICE = {
    "id": 7, "provider": "cloud [x]", "instance": "gpu.8", "region": "north",
    "pricing": "on_demand", "usd_per_hour": 12.5, "effective_on": "2026-03-01",
    "source_url": "https://a.example", "note": None, "supersedes": None, "superseded_by": 9,
}  # fmt: skip
SENT = {
    "provider": "cloud", "instance": "gpu.8", "region": "north", "pricing": "on_demand",
    "usd_per_hour": 12.5, "effective_on": "2026-03-01", "source_url": "https://a.example",
    "note": None, "supersedes": None,
}  # fmt: skip
HEADER = "provider,instance,region,usd_per_hour,effective_on,source_url"
ROW = "cloud,gpu.8,north,12.5,2026-03-01,https://a.example"


def test_prices_are_listed_with_what_supersedes_them(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer("GET /api/v1/prices", {"prices": [PRICE, PRICE | {"pricing": "spot"}]})
    ran = finishline("prices", "list", "--instance", "gpu.8", "--on", "2026-03-02")

    assert ran.code == 0
    assert standin.asked[0].path == "/api/v1/prices?instance=gpu.8&on=2026-03-02"
    assert "cloud [x]" in ran.out
    assert "superseded by 9" in ran.out
    standin.answers["GET /api/v1/prices"] = [(200, {"prices": []})]
    assert "No prices yet" in finishline("prices", "list").out


def test_a_price_is_added_with_its_source_and_day(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer("POST /api/v1/prices", PRICE, status=201)
    given = ["cloud", "gpu.8", "north", "12.5", "--from", "2026-03-01"]
    ran = finishline("prices", "add", *given, "--source", "https://a.example", "--token", "fl_o")

    assert (ran.code, ran.out) == (0, "Price 7 added.\n")
    assert json.loads(standin.asked[0].body) == SENT
    assert standin.asked[0].headers["Authorization"] == "Bearer fl_o"
    assert finishline("prices", "add", *given).code == 2  # No source.
    standin.refuse("POST /api/v1/prices", 409, "It is in the book already.")
    assert finishline("prices", "add", *given, "--source", "https://a.example").code == 0
    assert finishline("prices", "add", *given, "--source", "https://a.example").code == 1


def test_csv_and_toml_are_imported_alike(
    finishline: "Finishline", standin: "StandIn", tmp_path: Path
) -> None:
    standin.answer("POST /api/v1/prices/import", {"added": [PRICE, PRICE], "already_there": 1})
    table = tmp_path / "prices.csv"
    header = f"\ufeff{HEADER},note,supersedes"
    table.write_bytes(f"{header}\r\n{ROW},,\r\n\r\n{ROW},n,3".encode())
    toml = tmp_path / "prices.toml"
    toml.write_text(
        '[[prices]]\nprovider = "cloud"\ninstance = "gpu.8"\nregion = "north"\n'
        'usd_per_hour = 12.5\neffective_on = 2026-03-01\nsource_url = "https://a.example"\n'
        '[[prices]]\nprovider = "cloud"\ninstance = "gpu.8"\nregion = "north"\nnote = "n"\n'
        'usd_per_hour = 12.5\neffective_on = "2026-03-01"\nsource_url = "https://a.example"\n'
        "supersedes = 3\n"
    )
    ran = finishline("prices", "import", str(table))
    finishline("prices", "import", str(toml))

    assert (ran.code, ran.out) == (0, "2 prices added, 1 skipped as already known.\n")
    bodies = [json.loads(asked.body)["prices"] for asked in standin.asked]
    assert bodies == [[SENT, SENT | {"note": "n", "supersedes": 3}]] * 2


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("p.csv", "", "header"),
        ("p.csv", f"{HEADER}\n", "no price"),
        ("p.csv", f"{HEADER},region\n{ROW},x\n", "'region' twice"),
        ("p.csv", f"{HEADER}\n{ROW}\n{ROW},more\n", "p.csv line 3: 7 cells; expected 6"),
        ("p.csv", f'{HEADER}\n{ROW}"\n"never closed\n', "p.csv line 3"),
        ("p.csv", f"{HEADER}\n\n{ROW.replace('12.5', 'NaN')}\n", "line 3, field usd_per_hour"),
        ("p.csv", f"{HEADER}\n{ROW.replace('12.5', '$12')}\n", "line 2, field usd_per_hour"),
        ("p.csv", f"{HEADER},price\n{ROW},1\n", "field price"),
        ("p.toml", "[[prices]", "TOML"),
        (
            "p.toml",
            "[[price]]",
            "p.toml, field price: unknown field (did you mean 'prices'?); expected [[prices]]",
        ),
        ("p.toml", "prices = 1", "p.toml, field prices: not a list of tables"),
        ("p.toml", "", "no price"),
        (
            "p.csv",
            f"{HEADER.replace('usd_per_hour', 'usd_per_hr')}\n{ROW}\n",
            "p.csv line 2, field usd_per_hour: missing (did you mean 'usd_per_hour' where it says "
            "'usd_per_hr'?)",
        ),
        ("p.toml", "prices = [1]", "field prices[1]"),
        ("p.toml", '[[prices]]\nprovider = "x"', "field prices[1].instance: missing"),
    ],
)
def test_a_bad_file_is_refused_with_line_and_field_and_nothing_is_sent(
    finishline: "Finishline",
    standin: "StandIn",
    tmp_path: Path,
    name: str,
    content: str,
    told: str,
) -> None:
    path = tmp_path / name
    path.write_text(content)
    ran = finishline("prices", "import", str(path))

    assert (ran.code, ran.out, standin.asked) == (1, "", [])
    assert told in ran.err


def test_a_file_that_is_not_there_is_refused(finishline: "Finishline", tmp_path: Path) -> None:
    assert finishline("prices", "import", str(tmp_path / "gone.csv")).code == 1


def test_the_help_of_an_import_names_the_tables_of_its_toml(finishline: "Finishline") -> None:
    assert "[[prices]]" in finishline("prices", "import", "--help").out
