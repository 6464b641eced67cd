from datetime import UTC, datetime, timedelta

import pytest

from web import formats

GAP = "\u00a0"
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.8532, f"0.853{GAP}s"),
        (12.345, f"12.3{GAP}s"),
        (60.0, "0:01:00"),
        (60.01, "0:01:01"),
        (5025.2, "1:23:46"),
        (None, "–"),
    ],
)
def test_duration_is_precise_below_a_minute_and_rounded_up_above(
    seconds: float | None, shown: str
) -> None:
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(1234.5, "$1,234.50"), (0.0000159, "$0.000016"), (0.0, "$0.00"), (None, "–")],
)
def test_money_keeps_two_significant_digits_below_a_cent(usd: float | None, shown: str) -> None:
    assert formats.money(usd) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (97.66277, "percent", f"97.663{GAP}%"),
        (0.753, "fraction", "0.753"),
        (0.8, "nats/byte", f"0.8{GAP}nats/byte"),
        (None, "percent", "–"),
    ],
)
def test_quality_stays_in_its_unit(value: float | None, unit: str, shown: str) -> None:
    assert formats.quality(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(64.0, "64"), (0.02, "0.02"), (50_000, "50,000"), (True, "True"), ("adam", "adam")],
)
def test_number_shows_whole_floats_without_a_point(value: object, shown: str) -> None:
    assert formats.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (285_340.5, "285,340"),
        (0.00001, "0.00001"),
        (1234.5678, "1234.6"),
        (0.55, "0.55"),
        (-0.5, "-0.5"),
    ],
)
def test_number_writes_figures_out_and_never_with_an_exponent(value: float, shown: str) -> None:
    assert formats.number(value) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (None, "–"),
        (0.0, "$0.00"),
        (0.024460776946225, "$0.0245"),
        (0.112, "$0.112"),
        (1.5, "$1.50"),
    ],
)
def test_prices_that_are_compared_below_a_cent_keep_three_digits(
    usd: float | None, shown: str
) -> None:
    assert formats.small_money(usd) == shown


def test_milliseconds_keep_three_digits() -> None:
    shown = [formats.milliseconds(value) for value in (0.85702, 9.784310778490001, 75.35224573)]
    assert shown == [f"0.857{GAP}ms", f"9.78{GAP}ms", f"75.4{GAP}ms"]
    assert formats.milliseconds(None) == "–"


def test_interval_needs_both_ends() -> None:
    assert formats.interval(0.79, 0.91) == f"0.790 to 0.910{GAP}s"
    assert formats.interval(4980.0, 5100.0) == "1:23:00 to 1:25:00"
    assert formats.interval(None, 0.91) == ""


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
def test_age_is_told_in_its_largest_unit(ago: timedelta, shown: str) -> None:
    assert formats.age((NOON - ago).isoformat(), now=NOON) == shown


def test_timestamps_without_a_zone_are_utc() -> None:
    assert formats.minute("2026-11-20T10:00:00") == "2026-11-20 10:00:00 UTC"
    assert formats.day("2026-11-20T23:30:00-02:00") == "2026-11-21"


@pytest.mark.parametrize(
    "text", ["javascript:alert(1)", "data:text/html,x", "//evil.example", "http://[", "", None, 3]
)
def test_only_http_addresses_become_links(text: object) -> None:
    assert formats.web_address(text) is None


def test_an_https_address_becomes_a_link() -> None:
    assert formats.web_address("https://example.org/a?b=c") == "https://example.org/a?b=c"


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(31.22, "$31.22"), (11.0425, "$11.0425"), (9.0, "$9.00"), (0.526, "$0.526"),
     (1234.5, "$1,234.50"), (0.0000125, "$0.000013"), (None, "–")],
)  # fmt: skip
def test_a_price_keeps_the_digits_it_was_published_with(usd: float | None, shown: str) -> None:
    assert formats.price(usd) == shown


@pytest.mark.parametrize("figure", [1e15, 1.5e15, 1e16, 1e300, 1.7e308])
def test_no_figure_fills_a_page_with_digits(figure: float) -> None:
    written = [formats.price, formats.percent, formats.money, formats.small_money,
               formats.duration, formats.seconds_exact, formats.milliseconds, formats.quality,
               formats.number, lambda x: formats.quality(x, "percent"),
               lambda x: formats.interval(x / 2, x)]  # fmt: skip
    for write in written:
        for each in (figure, 1 / figure):
            assert len(write(each)) < 50, write(each)


def test_a_price_or_share_beyond_all_that_is_paid_or_measured_is_told_in_short() -> None:
    assert formats.price(1e308) == "$1e+308"
    assert formats.price(1e-9) == "$0.0000000010"
    assert formats.price(0.0) == "$0.00"
    assert formats.percent(1e308) == f"1e+308{GAP}%"
    assert formats.percent(-1e15) == f"-1000000000000000.0{GAP}%"


def test_an_address_is_shown_by_its_host() -> None:
    assert formats.web_host("https://Cloud.example:8443/prices?x") == "cloud.example"
    assert formats.web_host("nothing") == "nothing"
