"""Numbers, times and addresses as pages write them."""

from datetime import UTC, datetime, timedelta

import pytest

from web import formats
from web.formats import time_format

GAP = "\u00a0"
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("write", "shown"),
    [
        (
            formats.duration,  # Below a minute with three digits, then rounded up.
            {
                0.8532: f"0.853{GAP}s",
                12.345: f"12.3{GAP}s",
                119.9: "120\u00a0s",
                120.0: "2\u00a0min",
                5025.2: "83.8\u00a0min",
                9000.0: "2.5\u00a0h",
                None: "–",
            },
        ),
        (
            formats.money,
            {1234.5: "$1,234.50", 0.0000159: "$0.000016", 0.0: "$0.00", None: "–"},
        ),
        (
            formats.small_money,  # Compared below a cent, so with three digits.
            {None: "–", 0.0: "$0.00", 0.024460776946225: "$0.0245", 0.112: "$0.112", 1.5: "$1.50"},
        ),
        (
            formats.price,  # With the digits it was published with.
            {
                31.22: "$31.22",
                11.0425: "$11.0425",
                9.0: "$9.00",
                0.526: "$0.526",
                1234.5: "$1,234.50",
                0.0000125: "$0.000013",
                1e-9: "$0.0000000010",
                1e308: "$1e+308",
                None: "–",
            },
        ),
        (formats.percent, {1e308: f"1e+308{GAP}%", -1e15: f"-1000000000000000.0{GAP}%"}),
        (
            formats.milliseconds,
            {0.85702: f"0.857{GAP}ms", 9.7843: f"9.78{GAP}ms", 75.352: f"75.4{GAP}ms", None: "–"},
        ),
        (
            formats.number,
            {
                64.0: "64",
                0.02: "0.02",
                50_000: "50,000",
                "adam": "adam",
                285_340.5: "285,340",
                0.00001: "0.00001",
                1234.5678: "1234.6",
                -0.5: "-0.5",
            },
        ),
        (lambda value: formats.quality(value, "percent"), {97.66277: f"97.663{GAP}%", None: "–"}),
        (lambda value: formats.quality(value, "fraction"), {0.753: "0.753"}),
        (lambda value: formats.quality(value, "nats/byte"), {0.8: f"0.8{GAP}nats/byte"}),
        (
            formats.web_host,
            {"https://Cloud.example:8443/prices?x": "cloud.example", "nothing": "nothing"},
        ),
        (formats.minute, {"2026-11-20T10:00:00": "20 Nov 2026, 10:00 UTC"}),
        (formats.day, {"2026-11-20T23:30:00-02:00": "2026-11-21"}),
    ],
)
def test_figures_are_written(write, shown):
    assert {value: write(value) for value in shown} == shown


@pytest.mark.parametrize(
    ("ago", "shown"),
    [
        (timedelta(seconds=0), "just now"),
        (timedelta(seconds=1), f"1{GAP}second ago"),
        (timedelta(minutes=59, seconds=59), f"59{GAP}minutes ago"),
        (timedelta(days=3), f"3{GAP}days ago"),
        (timedelta(seconds=-5), "just now"),
    ],
)
def test_age_is_in_its_largest_unit(ago, shown):
    assert formats.age((NOON - ago).isoformat(), now=NOON) == shown


@pytest.mark.parametrize(
    "text", ["javascript:alert(1)", "data:text/html,x", "//evil.example", "http://[", "", None, 3]
)
def test_only_http_addresses_become_links(text):
    assert formats.web_address(text) is None
    assert formats.web_address("https://example.org/a?b=c") == "https://example.org/a?b=c"


@pytest.mark.parametrize("figure", [1e15, 1.5e15, 1e16, 1e300, 1.7e308])
def test_no_figure_fills_a_page_with_digits(figure):
    written = [formats.price, formats.percent, formats.money, formats.small_money,
               formats.duration, formats.seconds_exact, formats.milliseconds, formats.quality,
               formats.number, lambda x: formats.quality(x, "percent"),
               lambda x: formats.SECONDS.interval(x / 2, x)]  # fmt: skip
    for write in written:
        for each in (figure, 1 / figure):
            assert len(write(each)) < 50, write(each)


def test_times_of_a_board_have_one_unit():
    """As on two boards of MLPerf and DAWNBench: 24.2 s beside ten minutes, 75.67 beside 75.72."""
    shown = time_format([605.398, 24.204, None])
    assert [shown(seconds) for seconds in (24.204, 605.398, 7200.0, None)] == [
        "0.403\u00a0min", "10.09\u00a0min", "120.00\u00a0min", "–",
    ]  # fmt: skip
    assert shown.interval(574.0, 639.0) == "9.57 to 10.65\u00a0min"
    assert shown.interval(None, 1.0) == ""

    alike = time_format([75.67, 640.0 * 60, 75.72])
    assert [alike(75.67), alike(75.72)] == ["1.261\u00a0min", "1.262\u00a0min"]
    brief = time_format([119.9])
    assert [brief(s) for s in (0.003593, 0.0998, 1.913, 75.67, 0.0)] == [
        "0.00359\u00a0s", "0.0998\u00a0s", "1.91\u00a0s", "75.67\u00a0s", "0\u00a0s",
    ]  # fmt: skip
    assert (time_format([120.0]).unit, time_format([]).unit) == ("min", "s")


def test_definition_names_the_unit_of_its_boards():
    assert time_format([2.5, 9000.0], "s")(9000.0) == "9,000.00\u00a0s"
    assert time_format([2.5], "min")(2.5) == "0.0417\u00a0min"
