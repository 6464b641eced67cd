"""Workers and their canaries in words and lines."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

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

View = dict[str, Any]
Make = dict[str, Callable[..., View]]


def reading(gflops: float, ratio: float | None, **changes: Any) -> View:
    return {
        "gflops": gflops,
        "ratio": ratio,
        "baseline_gflops": None if ratio is None else 100.0,
        "configuration": "numpy",
        "measured_at": "2026-11-20T10:00:00Z",
        "moment": "before",
    } | changes


def test_a_canary_line_is_held_against_the_baseline() -> None:
    line = canary_line([reading(94.0, 0.94), reading(101.0, 1.01), reading(100.0, None)])
    assert line is not None
    assert line["middle"] == HEIGHT / 2
    assert line["top"] < line["middle"] < line["bottom"] < line["last"][1]
    assert line["path"].count("L") == 2
    assert line["summary"].replace("\u00a0", " ") == (
        "3 readings since 2026-11-20, the latest 94.00 GFLOP/s: 6.0 % below "
        "(baseline 100.0 GFLOP/s); furthest off 6.0 % below."
    )


def test_a_canary_line_is_of_the_latest_configuration_alone() -> None:
    line = canary_line([reading(50.0, None), reading(900.0, None, configuration="old torch")])
    assert line is not None
    assert line["summary"].startswith("1 reading since")
    assert line["middle"] is None
    assert canary_line([reading(0.0, None) | {"gflops": None}]) is None


def test_speeds_change_their_unit() -> None:
    assert speed_text(666_800.0).replace("\u00a0", " ") == "666.8 TFLOP/s"


@pytest.mark.parametrize(
    ("changes", "state", "words"),
    [
        ({}, "idle", "Waits for work."),
        ({"alive": False, "state": "stopping"}, "stopped", "Has stopped"),
        ({"alive": False, "state": "busy"}, "gone", "Was last heard of"),
        ({"state": "drifted"}, "drifted", "until its canary is well"),
        ({"state": "unheard_of"}, "unheard_of", "Is unheard_of."),
    ],
)
def test_a_worker_says_what_it_does(make: Make, changes: View, state: str, words: str) -> None:
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
def test_an_expected_start_is_in_words(start: str | None, words: str) -> None:
    item = {"expected_start": start, "why_unknown": "nobody knows"}
    assert expected_text(item, datetime(2026, 11, 20, 12, tzinfo=UTC)) == words


def test_a_class_of_drifted_workers_says_so() -> None:
    nobody = {"hardware_class": "cpu", "workers": 0, "free": 0, "last_seen_at": None}
    drifted = nobody | {"out": 2, "held": 0}
    assert class_sentence(drifted) == "2 workers, off their baseline and out"
    held = nobody | {"out": 1, "held": 1}
    assert class_sentence(held) == "no worker that takes work, 1 out, 1 paused or drained"


def test_figures_have_names_of_people() -> None:
    assert roof_name("gemm_bf16") == "Matmul, bf16"
    assert roof_name("launch_latency") == "Kernel launch"
    assert roof_name("new_thing") == "new thing"


def roofline(**changes: Any) -> View:
    return {
        "roofs": [{"precision": "bf16", "tflops": 700.0, "how": ""}],
        "copy_gb_per_second": 3500.0,
        "points": [
            {"intensity": 20.0, "achieved_tflops": 40.0, "model": None, "benchmark": "digits",
             "precision": None},
        ],
    } | changes  # fmt: skip


def test_a_roof_bends_where_bandwidth_and_arithmetic_meet() -> None:
    roof, dots = roofline_figure(roofline())["data"]
    assert roof["x"] == [2.0, 200.0, 2000.0]  # The ridge: 700 TFLOP/s by 3.5 TB/s.
    assert roof["y"] == pytest.approx([7.0, 700.0, 700.0])
    assert dots["y"] == [40.0]
    (flat,) = roofline_figure(roofline(copy_gb_per_second=None, points=[]))["data"]
    assert set(flat["y"]) == {700.0}


def test_a_roofline_carries_no_markup_and_no_colour(hostile: str) -> None:
    figure = roofline_figure(roofline(points=[roofline()["points"][0] | {"model": hostile}]))
    assert "<script" not in str(figure)
    assert "'color'" not in str(figure)


def test_a_workers_page_escapes_and_shows_absent_figures(
    make: Make, hostile: str, read: Callable[[str], str]
) -> None:
    probe = {
        "measured_at": "2026-11-20T10:00:00Z",
        "figures": {"copy": {"value": None, "unit": "GB/s", "how": hostile}},
        "host": {"kernel": hostile},
    }
    worker = make["worker"](name=hostile, hardware_class=hostile, probe=probe)
    nothing = {"roofs": [], "points": [], "copy_gb_per_second": None}
    page = render("worker.html", worker=worker, attempts=[], roofline=nothing, probes=[])
    assert "<script>alert" not in page
    assert "does not measure itself" in read(page)
    assert "has made no attempt yet" in read(page)
