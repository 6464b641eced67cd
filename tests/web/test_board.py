"""A board: its charts, its links, its families and the range of its target."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import plotly.graph_objects as go
import pytest

from web.board_chart import front_entries, pareto_figure, pareto_table
from web.board_map import board_map
from web.board_marks import not_separated, time_bars
from web.board_table import (
    asks_what_if,
    board_query,
    is_filtered,
    kind_link,
    pages_of,
    sort_link,
    sort_state,
    target_range,
)
from web.board_tabs import board_address, board_tabs
from web.chart_parts import names_of, series_marks, thin_entries, thinning_note
from web.charts import CHARTS
from web.curves_chart import (
    MOST_EVALUATIONS,
    convergence_curves_figure,
    convergence_curves_table,
)
from web.distribution_chart import (
    box_of,
    distribution_figure,
    distribution_table,
    reached_by,
    survival_figure,
    survival_table,
)
from web.formats import time_format
from web.home_words import families, short_title, shown_families
from web.records_chart import records_figure, records_table
from web.render import render
from web.scaling_chart import scaling_families, scaling_figure, scaling_table

View = dict[str, Any]


Make = dict[str, Callable[..., View]]


def make_set(entry, *seconds):
    curve = [
        {"epoch": float(j), "seconds": 0.1 * j, "samples": 64 * j, "quality": 90.0 + j}
        for j in range(1, 9)
    ]
    runs = [{"file": f"run_{i}.log", "seconds": s, "curve": curve} for i, s in enumerate(seconds)]
    return {"entry": entry, "runs": runs}


def make_record(name, date, tta_seconds, **changes):
    nobody = {"submitter": "alice", "hardware": "8 × H100", "status": "verified"}
    figures = {"single_run": False, "beaten": None, "margin_percent": None, "p_value": None}
    known = {"submission_id": name, "date": date, "tta_seconds": tta_seconds}
    return nobody | figures | known | changes


def make_divisions():
    first = make_record("first", "2026-01-10", 20.0)
    second = make_record("second", "2026-05-01", 15.0, margin_percent=25.0, p_value=0.001, tries=7)
    lower = make_record("lower", "2026-06-01T10:00:00+00:00", 14.9, status="claimed", p_value=0.4)
    reason = "not significantly faster than the record"
    closed = {"division": "closed", "records": [first, second]}
    return [
        closed | {"not_records": [lower | {"holder": "second", "reason": reason}]},
        {"division": "open", "records": [], "not_records": []},
    ]


def make_view(make, target, model="digits-cnn"):
    """A view with something to draw in every chart."""
    accelerated = [
        make["entry"](
            submission_id=f"x{count}",
            rank=rank,
            model=model,
            submitter=model,
            tta_seconds=seconds,
            system=make["system"](name=model, accelerator="H200", accelerator_count=count),
        )
        for rank, (count, seconds) in enumerate([(32, 30.0), (16, 60.0), (8, 100.0)], start=1)
    ]
    divisions = make_divisions()
    divisions[0]["records"][0] |= {"hardware": model, "submitter": model}
    return {
        "board": make["board"](*accelerated),
        "target": target,
        "against": "cost",
        "time": None,
        "divisions": divisions,
        "note": None,
        "sets": [make_set(entry, 0.8, 0.9, 1.0, 1.1, None) for entry in accelerated],
        "reference": [{"index": 1, "mean": 91.0, "lower": 90.0, "upper": 92.0}],
    }


def test_every_chart_is_drawn_from_traces_that_the_smallest_bundle_has(make, target, hostile):
    for model in ("digits-cnn", hostile):
        view = make_view(make, target, model)
        for chart in CHARTS:
            figure = chart.figure(view)
            text = json.dumps(figure, allow_nan=False)
            go.Figure(json.loads(text))
            assert figure["data"], chart.name
            assert {trace["type"] for trace in figure["data"]} <= {"scatter", "bar"}
            # Any tag but a line break would be drawn with a style attribute, and be refused.
            tags = set(re.findall(r"<[^>]*>", text))
            assert tags <= {"<br>", "<extra>", "</extra>"}, chart.name
            assert '"color"' not in text
            table = chart.table(view)
            assert table.rows, chart.name
            assert {len(row.cells) for row in table.rows} == {len(table.columns)}


def test_charts_without_anything_to_draw_say_what_they_need(make, target):
    nothing = {"division": "closed", "records": [], "not_records": []}
    view = make_view(make, target) | {"board": make["board"](), "divisions": [nothing]}
    view |= {"sets": [], "reference": []}
    for chart in CHARTS:
        figure = chart.figure(view)
        assert figure["data"] == [], chart.name
        assert figure["layout"]["meta"]["empty"].endswith("."), chart.name


SYSTEMS = {
    "a": ("NVIDIA Blackwell Ultra GPU (GB300)", 512, 24.0),
    "b": ("AMD Instinct MI355X", 8, 600.0),
    "c": ("AMD Instinct MI355X", 8, 700.0),
    "d": ("NVIDIA H200", 64, 650.0),
}


def mapped(make, *names, **changes):
    rows = [(name, *SYSTEMS[name]) for name in names]
    return [
        make["entry"](
            submission_id=name,
            evidence="published",
            tta_seconds=seconds,
            system=make["system"](accelerator=words, accelerator_count=count),
            **changes,
        )
        for name, words, count, seconds in rows
    ]


def test_a_board_is_drawn_as_times_against_accelerators_with_its_front_named(make):
    entries = mapped(make, *SYSTEMS)
    found = board_map(entries, time_format(e["tta_seconds"] for e in entries))

    assert found is not None
    assert found.unit == "minutes"
    names = [name.text for name in found.names]
    assert names == ["8\u00a0×\u00a0MI355X", "512\u00a0×\u00a0GB300"]
    by_address = {mark.address[-1]: mark for mark in found.marks}
    assert by_address["a"].x > by_address["d"].x > by_address["b"].x == by_address["c"].x
    assert by_address["a"].y > by_address["b"].y > by_address["d"].y > by_address["c"].y
    assert by_address["b"].css == "vendor-amd is-published"
    assert by_address["a"].words == "512\u00a0×\u00a0GB300, alice: 0.400\u00a0min"
    assert all(0 <= mark.x <= 360 and 0 <= mark.y <= 152 for mark in found.marks)
    assert [tick.text for tick in found.x_ticks] == ["8", "64", "512"]


def test_no_picture_is_drawn_of_one_point_or_of_rows_without_a_number(make):
    seconds = time_format([])
    assert board_map(mapped(make, "a"), seconds) is None
    assert board_map(mapped(make, "a", "b", rank=None), seconds) is None
    nameless = [make["entry"](system=make["system"](accelerator=None)) for _ in range(3)]
    assert board_map(nameless, seconds) is None


def test_the_front_of_a_quality_holds_the_best_at_each_time(make):
    qualities = {"fast": (10.0, 93.0), "good": (30.0, 96.0), "beaten": (40.0, 95.0)}
    entries = [
        make["entry"](submission_id=name, tta_seconds=seconds, quality=quality)
        for name, (seconds, quality) in qualities.items()
    ]
    higher = front_entries(entries, "quality")
    lower = front_entries(entries, "quality", lower_quality=True)

    assert [entry["submission_id"] for entry in higher] == ["fast", "good"]
    assert [entry["submission_id"] for entry in lower] == ["fast"]


def test_a_board_without_energy_says_how_one_comes_about(make):
    board = make["board"](make["entry"](), make["entry"](submission_id="two"))
    assert "No energy measured yet" in pareto_figure(board, "energy")["layout"]["meta"]["empty"]

    board["entries"][0]["energy_joules"] = 1234.5
    board["entries"][1]["energy_joules"] = 2000.0
    figure = pareto_figure(board, "energy")
    assert figure["data"][1]["x"] == [1234.5, 2000.0]
    assert pareto_table(board, "energy").rows[0].cells[-1] == "1234 J"
    assert "measured" in pareto_table(board, "energy").rows[0].cells


def test_of_five_thousand_the_front_and_the_measured_are_kept_and_the_caption_says_so(make):
    entries = [
        make["entry"](
            submission_id=f"s{i}",
            rank=i + 1,
            status="verified" if i % 100 == 7 else "claimed",
            tta_seconds=100.0 + i,
            cost_usd=9000.0 - (i if i % 50 == 0 else 0),
        )
        for i in range(5000)
    ]
    front = {entry["submission_id"] for entry in front_entries(entries)}
    drawn = {entry["submission_id"] for entry in thin_entries(entries, front)}
    figure = pareto_figure(make["board"](*entries))

    assert len(front) == 100
    assert front <= drawn
    assert {f"s{i}" for i in range(7, 5000, 100)} <= drawn
    assert len(drawn) == sum(len(t["x"]) for t in figure["data"][1:]) == 500
    assert figure["layout"]["meta"]["note"].startswith("500 of 5,000 shown")
    assert thinning_note(500, 500) is None


def test_records_are_steps_and_what_was_no_record_is_a_small_mark():
    steps, others = records_figure(make_divisions())["data"]

    assert steps["line"]["shape"] == "hv"
    assert steps["y"] == [20.0, 15.0, 15.0]
    assert steps["x"][-1] == others["x"][0] == "2026-06-01T10:00:00+00:00"
    assert steps["marker"]["size"] == [11, 11, 0]
    assert len(steps["text"]) == len(steps["x"])
    assert others["marker"]["size"] < 11
    assert others["marker"]["symbol"] == ["circle-open"]
    assert "not significantly faster" in others["text"][0]
    assert "the best of 7 tries" in steps["text"][1]
    *_, before, last = records_table(make_divisions()).rows
    assert (before.cells[-1], last.cells[-1]) == ("7", "–")
    assert last.cells[2:5] == ("2026-06-01", "closed", "claimed")
    assert last.cells[5] == "not significantly faster than the record"
    assert last.address == "/submissions/lower"


def test_a_record_says_how_it_is_known():
    divisions = make_divisions()
    divisions[0]["records"][1] |= {"evidence": "published"}

    steps, _ = records_figure(divisions)["data"]
    assert "published" in steps["text"][1]
    evidence = [row.cells[4] for row in records_table(divisions).rows]
    assert evidence == ["claimed · epochs agree", "published", "claimed"]


@pytest.mark.parametrize("seconds", [[3.0, 1.0, 2.0, 10.0], [5.5, 1.0, 2.0, 8.0, 9.0, 3.0, 3.0]])
def test_a_box_has_the_quartiles_of_numpy(seconds):
    box = box_of(seconds)

    assert box is not None
    found = (box.lower, box.median, box.upper)
    assert found == pytest.approx(tuple(np.percentile(seconds, [25, 50, 75])))
    assert box_of(seconds[:3]) is None


def test_the_spread_shows_every_run_that_reached_and_a_box_from_four_up(make):
    many = make_set(make["entry"](submission_id="many"), 1.0, 2.0, 3.0, 4.0, None)
    few = make_set(make["entry"](submission_id="few", status="claimed"), 2.0, None)
    figure = distribution_figure([many, few])
    boxes, medians, verified, claimed = figure["data"]

    assert boxes["x"] == [1.75, 3.25, 3.25, 1.75, 1.75, None]
    assert medians["x"] == [2.5, 2.5, None]
    assert sorted(verified["x"]) == [1.0, 2.0, 3.0, 4.0]
    assert claimed["x"] == [2.0]
    assert distribution_table([few]).rows[0].cells[3:5] == ("2", "1")


def test_a_run_that_never_got_there_keeps_the_chance_below_one(make):
    one = make_set(make["entry"](), 4.0, 2.0, None, 2.0, None)

    assert reached_by(one["runs"]) == [(0.0, 0.0), (2.0, 0.4), (4.0, 0.6)]
    (steps,) = survival_figure([one])["data"]
    assert steps["y"] == [0.0, 0.4, 0.6, 0.6]
    assert len(steps["marker"]["size"]) == len(steps["x"])
    cells = survival_table([one]).rows[0].cells
    assert cells[5:8] == ("2.00\u00a0s", "4.00\u00a0s", "–")


def test_speed_up_is_against_the_smallest_system_of_the_family(make, target):
    board = make_view(make, target)["board"]
    slower = board["entries"][1] | {"submission_id": "slower", "tta_seconds": 90.0}
    unranked = board["entries"][0] | {"submission_id": "unranked", "rank": None}
    elsewhere = slower | {"submitter": "bob"}
    board["entries"] += [slower, unranked | {"tta_seconds": 1.0}, elsewhere]
    (family,) = scaling_families(board)

    assert [step.accelerators for step in family.steps] == [8, 16, 32]
    # 8 take 100 s: 16 in 60 s are worth 8 × 100 / 60 of them, 32 in 30 s are worth 26.7.
    assert [step.speed_up for step in family.steps] == pytest.approx([8.0, 40 / 3, 80 / 3])
    assert [step.efficiency for step in family.steps] == pytest.approx([1.0, 5 / 6, 5 / 6])
    ideal, line = scaling_figure(board)["data"]
    assert ideal["x"] == ideal["y"] == [8, 32]
    assert line["x"] == [8, 16, 32]
    assert [row.cells[-1] for row in scaling_table(board).rows] == [
        "100\u00a0%", "83\u00a0%", "83\u00a0%",
    ]  # fmt: skip


def test_curves_have_the_reference_over_epochs_alone_and_are_thinned(make, target):
    one = make_set(make["entry"](), 0.8, 0.9)
    long = [{"epoch": j / 10, "seconds": j, "samples": j, "quality": 50.0} for j in range(1, 2001)]
    one["runs"][0]["curve"] = long
    reference = [{"index": 1, "mean": 40.0, "lower": 30.0, "upper": 50.0}]
    reference.append({"index": 2, "mean": 60.0, "lower": None, "upper": None})
    figure = convergence_curves_figure([one], target, reference)

    over = {trace["name"]: trace["meta"]["view"] for trace in figure["data"]}
    assert over["reference mean"] == over["control-point band"] == "epochs"
    series = [t for t in figure["data"] if t["meta"]["paint"] == "series"]
    assert [t["meta"]["view"] for t in series] == ["seconds", "seconds", "epochs", "epochs"]
    assert [t["showlegend"] for t in series] == [True, False, True, False]
    assert len(series[0]["x"]) == MOST_EVALUATIONS
    assert (series[2]["x"][0], series[2]["x"][-1]) == (0.1, 200.0)


def test_a_run_without_evaluations_takes_no_place_in_the_legend_nor_an_empty_column_in_the_table(
    make, target
):
    one = make_set(make["entry"](), None, 200.0, 210.0)
    one["runs"][0]["curve"] = []
    for point in one["runs"][1]["curve"]:  # The runs share their curve.
        point |= {"epoch": None, "seconds": 60.0 * point["quality"]}
    first, second = convergence_curves_figure([one], target)["data"][:2]
    assert (first["showlegend"], second["showlegend"]) == (True, False)

    table = convergence_curves_table([one], target).without_empty_columns()
    assert "Last epoch" not in [column.title for column in table.columns]
    assert [row.cells[5] for row in table.rows] == ["–", "98.00\u00a0min", "98.00\u00a0min"]


def test_series_differ_in_mark_or_dash_without_their_colour():
    marks = [tuple(series_marks(order).values()) for order in range(12)]
    assert len(set(marks)) == 12


def test_names_are_what_tells_submissions_apart(make):
    one = make["entry"](submission_id="a", rank=1, submitter="alice")
    two = make["entry"](submission_id="b", rank=None, submitter="bob")
    other = make["entry"](submission_id="c", rank=3, model="MLP")

    assert names_of([one, other]) == {"a": "1. EPYC 7B13, digits-cnn", "c": "3. EPYC 7B13, MLP"}
    assert names_of([one, two]) == {
        "a": "1. EPYC 7B13, alice",
        "b": "EPYC 7B13, bob",
    }
    marked = one | {"system": make["system"](accelerator="a < b")}
    assert names_of([marked]) == {"a": "1. a &lt; b"}
    assert names_of([marked], written=str) == {"a": "1. a < b"}


FILTERS = {"division": "open", "q": "a&b=c", "sort": "cost", "order": "asc", "cursor": "x"}


def test_sorting_keeps_the_filters_and_starts_at_the_first_page():
    query = parse_qs(sort_link(FILTERS, "tta").removeprefix("?"))
    assert query == {
        "division": ["open"],
        "q": ["a&b=c"],
        "sort": ["tta"],
        "order": ["asc"],
    }


def test_sorting_twice_turns_the_order_round():
    assert "order=desc" in sort_link(FILTERS, "cost")
    assert "order=asc" in sort_link(FILTERS | {"order": "desc"}, "cost")


def test_a_column_tells_how_it_is_sorted():
    assert sort_state(FILTERS, "cost") == "ascending"
    assert sort_state(FILTERS | {"order": "desc"}, "cost") == "descending"
    assert sort_state(FILTERS, "model") == "none"


def test_empty_values_stay_out_of_links():
    assert board_query({"division": None, "q": "", "metric": "cost"}) == "metric=cost"


def test_an_order_alone_is_no_filter():
    assert not is_filtered({"sort": "model", "q": "", "division": None})
    assert is_filtered({"status": "verified"})


def test_a_board_that_nobody_sorted_stands_by_rank():
    assert sort_state({}, "rank") == "ascending"
    assert "order=desc" in sort_link({}, "rank")


def test_the_other_kind_keeps_what_was_searched_for():
    query = parse_qs(kind_link(FILTERS | {"status": "verified"}, "inference").removeprefix("?"))
    assert query == {"metric": ["latency"], "q": ["a&b=c"]}
    assert kind_link({"metric": "latency"}, "train") == "?metric=tta"


def test_a_board_has_a_tab_for_each_division_and_kind():
    both, filters = ("train", "inference"), {"q": "a", "division": "open", "framework": "f"}
    alone, two = {"divisions": ["open"]}, {"divisions": ["open", "closed"]}
    assert board_tabs(alone, {}, ["train"], "train") == [("Leaderboard", "?", True)]
    assert [words for words, _, _ in board_tabs(alone, {}, both, "train")] == [
        "Training", "Inference",
    ]  # fmt: skip
    assert board_tabs(two, filters, both, "train") == [
        ("Closed", "?division=closed&framework=f&q=a", False),
        ("Open", "?division=open&framework=f&q=a", True),
        ("Inference, closed", "?metric=latency&division=closed&q=a", False),
        ("Inference, open", "?metric=latency&division=open&q=a", False),
    ]


def test_what_an_archive_published_has_a_tab_of_its_own():
    cifar10 = {
        "id": "cifar10",
        "divisions": ["open"],
        "clock": "dawnbench",
        "round": "archive",
        "published": [("inference", "open"), ("train", "open")],
    }
    filters = {"division": "open", "round": "archive"}
    assert board_tabs(cifar10, filters, ("train", "inference"), "train") == [
        ("Open", "?division=open&round=open", False),
        ("DAWNBench 2017–2020", "?division=open&round=archive", True),
        ("Inference", "?metric=latency&division=open&round=open", False),
        (
            "Inference, DAWNBench 2017–2020",
            "?metric=latency&division=open&round=archive",
            False,
        ),
    ]
    row = {"benchmark": "cifar10", "division": "open", "evidence": "published"}
    assert board_address(row) == "/benchmarks/cifar10?division=open&round=archive"


def test_bars_are_logarithmic_and_a_bracket_joins_rows_that_are_not_separated():
    def row(rank, seconds, beside=None):
        ends = {"tta_low_seconds": None, "tta_high_seconds": 100.0}
        known = {"submission_id": f"s{rank}", "rank": rank, "tta_seconds": seconds}
        return known | ends | {"not_separated_from": beside}

    rows = [row(1, 1.0), row(2, 10.0), row(3, 11.0, 2)]
    bars = time_bars(rows)
    # Ten is halfway from one to a hundred; the shortest bar is 6 percent.
    assert (bars["s1"].percent, bars["s2"].percent, bars["s2"].high) == (6.0, 53.0, 100.0)
    assert bars["s2"].low is None
    assert time_bars(rows[:1]) == {}
    assert not_separated(rows) == {"s2", "s3"}


def test_a_number_is_linked_as_it_is_typed():
    assert board_query({"target": 95.0, "price": 2.5}) == "target=95&price=2.5"


def board(*, entries, total, first):
    return {"entries": [{}] * entries, "total": total, "first": first}


def test_pages_lead_to_each_other_and_no_further():
    middle = pages_of(board(entries=50, total=2500, first=51), {})
    assert (middle.first, middle.previous, middle.following, middle.last) == (1, 1, 3, 50)
    assert (middle.first_entry, middle.last_entry) == (51, 100)
    last = pages_of(board(entries=5, total=25, first=21), {"limit": 10})
    assert (last.previous, last.following, last.last, last.last_entry) == (2, None, 3, 25)
    only = pages_of(board(entries=3, total=3, first=1), {})
    assert (only.first, only.following, only.last) == (None, None, 1)
    beyond = pages_of(board(entries=0, total=25, first=None), {"limit": 10, "page": 9})
    assert (beyond.previous, beyond.following, beyond.first_entry) == (3, None, 0)
    for refused in ("abc", "0", "-3", "1.5"):
        assert pages_of(board(entries=0, total=25, first=None), {"limit": refused}).last >= 1


def test_a_price_of_ones_own_is_asked_and_narrows_nothing():
    assert asks_what_if({"price": 2.5})
    assert not is_filtered({"price": 2.5})
    assert is_filtered({"hardware_class": "8-h100"})


def benchmark(benchmark_id, title="Some", submissions=0):
    return {
        "id": benchmark_id,
        "title": title,
        "task": "a task",
        "submissions": submissions,
        "inference_submissions": 0,
        "records": [],
        "target": {
            "metric": "top1Accuracy",
            "value": 1,
            "unit": "percent",
            "direction": "higher",
            "also": [],
        },
    }


LISTED = [
    benchmark("cifar10", "CIFAR-10"),
    benchmark("digits", "Digits", submissions=2),
    benchmark("mlperf-v0.5-ncf", "NCF (MLPerf v0.5)"),
    benchmark("mlperf-v10.0-bert", "BERT (MLPerf v10.0)"),
    benchmark("mlperf-v5.1-flux1", "FLUX.1 (MLPerf v5.1)"),
    benchmark("mlperf-v5.1-rgat", "R-GAT (MLPerf v5.1)", submissions=1),
]


def test_our_own_come_first_and_then_the_newest_round():
    assert [family.name for family in families(LISTED)] == [
        "Open",
        "MLPerf v10.0",
        "MLPerf v5.1",
        "MLPerf v0.5",
    ]


def test_boards_with_submissions_stand_first():
    own, _, newest, _ = families(LISTED)

    assert [b["id"] for b in own.rows] == ["digits", "cifar10"]
    assert own.waiting == ()
    assert [b["id"] for b in newest.rows] == ["mlperf-v5.1-rgat"]
    assert [b["id"] for b in newest.waiting] == ["mlperf-v5.1-flux1"]


def test_a_title_leaves_out_the_name_of_its_family():
    assert short_title(LISTED[4]) == "FLUX.1"
    assert short_title(benchmark("digits", "Digits (small)")) == "Digits (small)"


def test_the_first_page_shows_our_own_and_the_newest_round_with_a_submission():
    def shown(chosen):
        return [family.round_id for family in shown_families(LISTED, chosen)]

    assert shown(None) == shown("v0.5") == shown("v10.0") == shown("x") == ["open", "v5.1"]
    assert shown("all") == ["open", "v10.0", "v5.1", "v0.5"]


def test_the_home_page_links_every_benchmark_once():
    nobody = {"live": [], "live_count": 0, "verdicts": []}
    page = render("home.html", benchmarks=LISTED, round="all", **nobody)

    for listed in LISTED:
        assert page.count(f'href="/benchmarks/{listed["id"]}"') == 1
    usual = render("home.html", benchmarks=LISTED, **nobody)
    assert 'href="/benchmarks/mlperf-v0.5-ncf"' not in usual
    assert usual.count("no time yet") == 3


def test_the_best_claim_stands_beside_a_record_in_the_unit_of_its_board(make):
    record = make["record"](tta_seconds=240.0, hardware="8\u00a0×\u00a0H200")
    row = make["benchmark"]() | {
        "records": [record],
        "best_claim": 90.0,
        "time": time_format([240.0]),
    }
    page = render("home.html", benchmarks=[row], live=[], live_count=0, verdicts=[])
    assert "<b>4.00\u00a0min</b>" in page
    assert "best claim </span>1.50\u00a0min" in page
    assert "8\u00a0×\u00a0H200" in page


def target(value, unit="percent", direction="higher"):
    return {"metric": "m", "value": value, "unit": unit, "direction": direction}


def test_a_slider_ends_at_the_best_run_and_goes_four_times_as_far_the_easy_way():
    slide = target_range(target(94.0), (90.0, 96.0))
    assert (slide.low, slide.high, slide.step) == (86.0, 96.0, 0.1)
    loss = target_range(target(0.925, "nats/token", "lower"), (0.915, 0.95))
    assert (loss.low, loss.high, loss.step) == (0.915, 0.965, 0.0005)


@pytest.mark.parametrize("qualities", [None, (10.0, 20.0)])
def test_a_board_without_a_run_at_the_target_has_a_range_too(qualities):
    slide = target_range(target(99.5), qualities)
    assert slide.low < 99.5 <= slide.high <= 100.0
    assert slide.step > 0


def test_a_target_of_nothing_can_be_slid():
    slide = target_range(target(0.0, "loss", "lower"), None)
    assert 0.0 <= slide.low <= slide.high
