"""Figures, workers, the console and errors as pages show them."""

from datetime import UTC, datetime, timedelta

import pytest

from web import formats
from web.home_words import console_sections_of
from web.render import render
from web.workers import (
    HEIGHT,
    canary_line,
    class_sentence,
    doing_sentence,
    expected_text,
    roof_name,
    roofline_figure,
    speed_text,
    worker_state,
)

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
def test_duration_is_precise_below_a_minute_and_rounded_up_above(seconds, shown):
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(1234.5, "$1,234.50"), (0.0000159, "$0.000016"), (0.0, "$0.00"), (None, "–")],
)
def test_money_keeps_two_significant_digits_below_a_cent(usd, shown):
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
def test_quality_stays_in_its_unit(value, unit, shown):
    assert formats.quality(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(64.0, "64"), (0.02, "0.02"), (50_000, "50,000"), (True, "True"), ("adam", "adam")],
)
def test_number_shows_whole_floats_without_a_point(value, shown):
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
def test_number_writes_figures_out_and_never_with_an_exponent(value, shown):
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
def test_prices_that_are_compared_below_a_cent_keep_three_digits(usd, shown):
    assert formats.small_money(usd) == shown


def test_milliseconds_keep_three_digits():
    shown = [formats.milliseconds(value) for value in (0.85702, 9.784310778490001, 75.35224573)]
    assert shown == [f"0.857{GAP}ms", f"9.78{GAP}ms", f"75.4{GAP}ms"]
    assert formats.milliseconds(None) == "–"


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
def test_age_is_told_in_its_largest_unit(ago, shown):
    assert formats.age((NOON - ago).isoformat(), now=NOON) == shown


def test_timestamps_without_a_zone_are_utc():
    assert formats.minute("2026-11-20T10:00:00") == "2026-11-20 10:00:00 UTC"
    assert formats.day("2026-11-20T23:30:00-02:00") == "2026-11-21"


@pytest.mark.parametrize(
    "text", ["javascript:alert(1)", "data:text/html,x", "//evil.example", "http://[", "", None, 3]
)
def test_only_http_addresses_become_links(text):
    assert formats.web_address(text) is None


def test_an_https_address_becomes_a_link():
    assert formats.web_address("https://example.org/a?b=c") == "https://example.org/a?b=c"


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(31.22, "$31.22"), (11.0425, "$11.0425"), (9.0, "$9.00"), (0.526, "$0.526"),
     (1234.5, "$1,234.50"), (0.0000125, "$0.000013"), (None, "–")],
)  # fmt: skip
def test_a_price_keeps_the_digits_it_was_published_with(usd, shown):
    assert formats.price(usd) == shown


@pytest.mark.parametrize("figure", [1e15, 1.5e15, 1e16, 1e300, 1.7e308])
def test_no_figure_fills_a_page_with_digits(figure):
    written = [formats.price, formats.percent, formats.money, formats.small_money,
               formats.duration, formats.seconds_exact, formats.milliseconds, formats.quality,
               formats.number, lambda x: formats.quality(x, "percent"),
               lambda x: formats.SECONDS.interval(x / 2, x)]  # fmt: skip
    for write in written:
        for each in (figure, 1 / figure):
            assert len(write(each)) < 50, write(each)


def test_a_price_or_share_beyond_all_that_is_paid_or_measured_is_told_in_short():
    assert formats.price(1e308) == "$1e+308"
    assert formats.price(1e-9) == "$0.0000000010"
    assert formats.price(0.0) == "$0.00"
    assert formats.percent(1e308) == f"1e+308{GAP}%"
    assert formats.percent(-1e15) == f"-1000000000000000.0{GAP}%"


def test_an_address_is_shown_by_its_host():
    assert formats.web_host("https://Cloud.example:8443/prices?x") == "cloud.example"
    assert formats.web_host("nothing") == "nothing"


def reading(gflops, ratio, **changes):
    return {
        "gflops": gflops,
        "ratio": ratio,
        "baseline_gflops": None if ratio is None else 100.0,
        "configuration": "numpy",
        "measured_at": "2026-11-20T10:00:00Z",
        "moment": "before",
    } | changes


def test_a_canary_line_is_held_against_the_baseline():
    line = canary_line([reading(94.0, 0.94), reading(101.0, 1.01), reading(100.0, None)])
    assert line is not None
    assert line["middle"] == HEIGHT / 2
    assert line["top"] < line["middle"] < line["bottom"] < line["last"][1]
    assert line["path"].count("L") == 2
    assert line["summary"].replace("\u00a0", " ") == (
        "3 readings since 2026-11-20, the latest 94.00 GFLOP/s: 6.0 % below "
        "(baseline 100.0 GFLOP/s); furthest off 6.0 % below."
    )


def test_a_canary_line_is_of_the_latest_configuration_alone():
    line = canary_line([reading(50.0, None), reading(900.0, None, configuration="old torch")])
    assert line is not None
    assert line["summary"].startswith("1 reading since")
    assert line["middle"] is None
    assert canary_line([reading(0.0, None) | {"gflops": None}]) is None


def test_speeds_change_their_unit():
    assert speed_text(666_800.0).replace("\u00a0", " ") == "666.8 TFLOP/s"


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, "idle", "Waits for work."),
        ({"alive": False, "state": "stopping"}, "stopped", "Has stopped"),
        ({"alive": False, "state": "busy"}, "gone", "Last contact"),
        ({"state": "drifted"}, "drifted", "until its canary is back"),
        ({"state": "unheard_of"}, "unheard_of", "Is unheard_of."),
    ],
)
def test_a_worker_says_what_it_does(make, changes, state, words):
    worker = make["worker"](**changes)
    assert worker_state(worker) == state
    assert words in doing_sentence(worker)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("2026-11-20T12:00:01Z", "at any moment"),
        ("2026-11-20T11:00:00Z", "at any moment"),
        ("2026-11-20T12:00:40Z", "in about 40 seconds"),
        ("2026-11-20T14:10:00Z", "in about 2 hours"),
        (None, "unknown: nobody knows"),
    ],
)
def test_an_expected_start_is_in_words(start, words):
    item = {"expected_start": start, "why_unknown": "nobody knows"}
    assert expected_text(item, datetime(2026, 11, 20, 12, tzinfo=UTC)) == words


def test_a_class_of_drifted_workers_says_so():
    nobody = {"hardware_class": "cpu", "workers": 0, "free": 0, "last_seen_at": None}
    drifted = nobody | {"out": 2, "held": 0}
    assert class_sentence(drifted) == "2 workers offline: canary off the baseline"
    held = nobody | {"out": 1, "held": 1}
    assert class_sentence(held) == "no worker available, 1 offline, 1 paused"


def test_figures_have_names_of_people():
    assert roof_name("gemm_bf16") == "Matmul, bf16"
    assert roof_name("launch_latency") == "Kernel launch"
    assert roof_name("new_thing") == "new thing"


def roofline(**changes):
    return {
        "roofs": [{"precision": "bf16", "tflops": 700.0, "how": ""}],
        "copy_gb_per_second": 3500.0,
        "points": [
            {"intensity": 20.0, "achieved_tflops": 40.0, "model": None, "benchmark": "digits",
             "precision": None},
        ],
    } | changes  # fmt: skip


def test_a_roof_bends_where_bandwidth_and_arithmetic_meet():
    roof, dots = roofline_figure(roofline())["data"]
    assert roof["x"] == [2.0, 200.0, 2000.0]  # The ridge: 700 TFLOP/s by 3.5 TB/s.
    assert roof["y"] == pytest.approx([7.0, 700.0, 700.0])
    assert dots["y"] == [40.0]
    (flat,) = roofline_figure(roofline(copy_gb_per_second=None, points=[]))["data"]
    assert set(flat["y"]) == {700.0}


@pytest.mark.parametrize(
    ("role", "names"),
    [("worker", {"account"}), ("submitter", {"account", "notices"})],
)
def test_nobody_is_led_to_a_page_that_is_refused_them(role, names):
    assert set(pages_of(role)) == names


def test_organisers_are_led_to_every_page_of_the_console():
    assert "users" in pages_of("organiser")
    assert pages_of("admin") == pages_of("organiser")
    assert [section.label for section in console_sections_of("admin")] == [
        "Overview", "Submissions", "Benchmarks", "Workers", "People", "Log", "Account",
    ]  # fmt: skip


def pages_of(role):
    return [name for section in console_sections_of(role) for name, _, _ in section.pages]


def error_page(status, *, detail="It went wrong.", field=None):
    problem = {"field": field, "message": "not one of those there are"}
    problems = [problem] if field is not None else []
    return render("error.html", status=status, title="T", detail=detail, problems=problems)


@pytest.mark.parametrize(
    ("status", "field", "link", "words"),
    [
        (404, None, '<a href="/docs">', "among the benchmarks"),
        (422, "query.sort", '<a href="?">', "without its filters"),
        (422, "claim.runs", '<a href="/">', "Back to the benchmarks"),
        (500, None, '<a href="">', "report to this server's operator"),
        (429, None, '<a href="">', "again in a moment"),
        (503, None, '<a href="">', "again in a moment"),
        (403, None, '<a href="/">', "Back to the benchmarks"),
    ],
)
def test_an_error_page_says_what_to_do(status, field, link, words, read):
    page = error_page(status, field=field)
    main = page[page.index("<main") : page.index("</main>")]

    assert "It went wrong." in main
    assert link in main
    assert words in read(main)
    assert '<meta name="robots" content="noindex">' in page
