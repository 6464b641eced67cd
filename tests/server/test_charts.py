"""Charts of a board and the tables under them, from three published entries."""

import html
import re

import plotly.graph_objects as go
import pytest

from tests.support.build import ENTRY, send_entry

CHARTS = "/benchmarks/cifar10/charts"
COMMIT = "fb27b827bd83eff9021698ffe576b33a100e0b78"  # Of DAWNBench, so its source is known.
# Accelerators, and hours and dollars per hour of each of three epochs.
ENTRIES = {
    "2017-10-11": (1, 1.0, 2.0),
    "2018-04-20": (8, 0.2, 16.0),
    "2019-01-05": (4, 0.3, 8.0),
}
QUALITIES = (50, 80, 94.5)
TIMES = [36.0, 54.0, 180.0]  # Minutes.
CLOCKS = ["36.00 min", "54.00 min", "180.00 min"]
# For each chart the points of one of its traces, and a column of its table.
DRAWN = {
    "pareto": ([9.6, 7.2, 6.0], TIMES, "Cost to accuracy (USD)", ["$9.60", "$7.20", "$6.00"]),
    "pareto?against=quality": ([94.5] * 3, TIMES, "Best quality", ["94.5"] * 3),
    "records": (
        ["2017-10-11", "2018-04-20", "2018-04-20"],
        [180.0, 36.0, 36.0],
        "Time",
        ["36.00 min", "180.00 min"],
    ),
    "curves": ([12.0, 24.0, 36.0], QUALITIES, "Last epoch", ["3"] * 3),
    "distribution": (TIMES, None, "Median", CLOCKS),
    "scaling": ([1, 4, 8], [1.0, 10 / 3, 5.0], "Efficiency", ["100 %", "83 %", "62 %"]),
}  # fmt: skip


@pytest.fixture
def entries(client, olivia):
    ids = {}
    for date, (count, hours, price) in ENTRIES.items():
        entry = ENTRY | {"hardware": f"{count} NVIDIA Tesla V100 GPUs", "timestamp": date}
        entry |= {"costPerHour": price}
        lines = [f"{epoch}\t{epoch * hours}\t{q}" for epoch, q in enumerate(QUALITIES, start=1)]
        curve = "\n".join(["epoch\thours\ttop1Accuracy", *lines, ""])
        form = {"archive": "true", "source_commit": COMMIT}
        answer = send_entry(client, olivia, entry, curve=curve, **form)
        assert answer.status_code == 201, answer.text
        ids[date] = answer.json()["id"]
    return ids


def figure(client, address):
    """The figure of a chart. The plotly package refuses one that its library could not draw."""
    name, _, query = address.partition("?")
    answer = client.get(f"{CHARTS}/{name}.json?{query}")
    assert answer.status_code == 200, answer.text
    drawn = answer.json()
    go.Figure(drawn)
    # The smallest bundle of the library draws no others.
    assert {trace["type"] for trace in drawn["data"]} <= {"scatter", "bar"}
    return drawn


def table(client, address):
    page = client.get(f"{CHARTS}/{address}").text
    found = re.search(r"<table.*?</table>", page[page.index('id="figures"') :], re.DOTALL)
    head, *rows = [
        [" ".join(html.unescape(re.sub("<[^>]+>", " ", cell)).split()) for cell in cells]
        for row in re.findall(r"<tr.*?</tr>", found[0], re.DOTALL)
        if (cells := re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL))
    ]
    return [dict(zip(head, row, strict=True)) for row in rows]


@pytest.mark.parametrize("address", DRAWN)
def test_chart_and_table_show_the_entries(address, entries, client):
    xs, ys, column, cells = DRAWN[address]
    traces = figure(client, address)["data"]

    drawn = [trace for trace in traces if trace["x"] == pytest.approx(xs)]
    assert drawn
    assert ys is None or any(trace["y"] == pytest.approx(ys) for trace in drawn)
    assert [row[column] for row in table(client, address)] == cells


def test_front_holds_what_no_entry_beats(entries, client):
    front = figure(client, "pareto?against=quality")["data"][0]

    assert front["name"] == "Pareto front"
    assert (front["x"], front["y"]) == ([94.5], pytest.approx([36.0]))
    rows = table(client, "pareto?against=quality")
    assert [row["Front"] for row in rows] == ["on the front", "–", "–"]


def test_caption_says_what_a_chart_shows(entries, client):
    assert "Every run as a dot" in client.get(f"{CHARTS}/distribution").text
