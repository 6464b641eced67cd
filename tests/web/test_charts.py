"""Charts of runs, calibrations, comparisons, convergence and duels."""

import json
import re

import plotly.graph_objects as go
import pytest

from web.chart_parts import time_axis
from web.charts import curves_figure, pareto_figure
from web.compare_chart import overlaid_curves, run_times_figure
from web.curves_chart import convergence_figure
from web.formats import SECONDS, time_format
from web.progress import side_of, state_sentence
from web.records_chart import HEIGHT, WIDTH, record_sparkline
from web.render import render
from web.replay_chart import calibration_figure, duel_figure, largest_shift, replay_figure


def assert_plotly_accepts(figure):
    go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def trace_named(figure, name):
    return next(trace for trace in figure["data"] if trace["name"] == name)


def priced(make, name, tta_seconds, cost_usd):
    changes = {"tta_seconds": tta_seconds, "cost_usd": cost_usd}
    return make["entry"](submission_id=name, **changes)


def test_plotly_accepts_every_figure(make, busy_board, curves, target, control_points):
    for figure in (
        pareto_figure(busy_board),
        pareto_figure(make["board"]()),
        pareto_figure(make["board"](make["entry"](cost_usd=None))),
        curves_figure(curves, target, control_points),
        curves_figure([], target),
        replay_figure(make["verification"]()),
        replay_figure(make["queued_verification"](control_points=[])),
    ):
        assert_plotly_accepts(figure)


def test_plotly_would_refuse_a_wrong_figure():
    with pytest.raises(ValueError, match="Invalid property"):
        assert_plotly_accepts({"data": [{"type": "scatter", "colour": "red"}], "layout": {}})


def test_the_front_holds_what_nothing_beats_in_both(make):
    board = make["board"](
        priced(make, "fast", 10.0, 9.0),
        priced(make, "beaten", 20.0, 10.0),
        priced(make, "middle", 30.0, 5.0),
        priced(make, "cheap", 40.0, 1.0),
    )
    front = trace_named(pareto_figure(board), "Pareto front")
    assert list(zip(front["x"], front["y"], strict=True)) == [(1.0, 40.0), (5.0, 30.0), (9.0, 10.0)]
    assert front["line"]["shape"] == "hv"


def test_unranked_entries_are_not_drawn(make, busy_board):
    rejected = make["entry"](submission_id="cheat", rank=None, status="rejected")
    busy_board["entries"].append(rejected)
    names = {trace["name"] for trace in pareto_figure(busy_board)["data"]}
    assert names == {"Pareto front", "AMD, measured", "AMD, claimed", "NVIDIA, claimed"}


def test_without_any_cost_the_times_stand_with_their_intervals(make):
    figure = pareto_figure(make["board"](priced(make, "a", 0.85, None), priced(make, "b", 1, None)))
    whiskers = trace_named(figure, "95 % interval of the mean")
    assert whiskers["x"] == [0.79, 0.91, None, 0.79, 0.91, None]
    assert figure["layout"]["xaxis"]["title"]["text"] == "Time to accuracy (seconds)"


def test_a_small_amount_of_all_is_drawn_between_zero_and_its_double(make):
    entries = [priced(make, "a", 2.5, 0.00084), priced(make, "b", 2.6, 0.00084)]
    axes = pareto_figure(make["board"](*entries))["layout"]
    assert axes["xaxis"]["range"] == [0, 0.00168]


@pytest.mark.parametrize(
    ("low", "high", "within"),
    [
        (0.5, 5000.0, [1, 10, 100, 1000]),
        (2.0, 30.0, [2, 5, 10, 20]),
        (8.0, 21.0, [8, 10, 15, 20]),
        (73.0, 77.0, [73, 74, 75, 76, 77]),
    ],
)
def test_times_have_a_logarithmic_axis_with_some_ticks_in_its_range(low, high, within):
    found = time_axis(SECONDS, "Time", [low, high])
    assert (found["type"], found["title"]["text"]) == ("log", "Time (seconds)")
    assert [at for at in found["tickvals"] if low <= at <= high] == pytest.approx(within)


def test_a_stopwatch_writes_its_ticks(busy_board):
    found = time_axis(time_format([], "h:mm:ss"), "Time", [3600.0, 7300.0])
    assert found["ticktext"] == ["1:00:00", "2:00:00"]
    assert found["title"]["text"] == "Time"
    # The entries of CIFAR-10 in DAWNBench, from half a minute to four days.
    found = time_axis(time_format([], "h:mm:ss"), "Time", [27.9, 370_088.0])
    assert found["ticktext"] == ["0:01:00", "0:10:00", "1:00:00", "10:00:00", "100:00:00"]


def test_the_front_has_names_and_a_vendor_its_colour(make):
    rows = [
        ("NVIDIA GB300", 512, 10.0, 9.0),
        ("AMD MI355X", 8, 20.0, 4.0),
        ("abacus", 1, 30.0, 8.0),
    ]
    entries = [
        make["entry"](
            submission_id=name,
            tta_seconds=seconds,
            cost_usd=cost,
            system=make["system"](accelerator=name, accelerator_count=count),
        )
        for name, count, seconds, cost in rows
    ]
    front, *dots = pareto_figure(make["board"](*entries))["data"]
    assert (
        front["text"]
        == ["512\u00a0×\u00a0GB300", "8\u00a0×\u00a0MI355X"][:: 1 if front["y"][0] == 10 else -1]
    )
    assert [trace["meta"]["paint"] for trace in dots] == [
        "vendor-nvidia", "vendor-amd", "vendor-other",
    ]  # fmt: skip


def test_a_chart_of_one_point_is_a_sentence(make):
    one = make["board"](make["entry"](cost_usd=1.0))
    assert pareto_figure(one)["layout"]["meta"]["empty"] == "A chart needs two entries."


def test_evidence_differs_in_shape_not_in_colour_alone(busy_board):
    dots = [t for t in pareto_figure(busy_board)["data"] if t["mode"] == "markers"]
    found = {(t["name"].partition(", ")[2], t["marker"]["symbol"]) for t in dots}
    assert len({symbol for _, symbol in found}) == len(found) == 2


def test_figures_carry_no_colour_of_their_own(busy_board, curves, target, control_points):
    for figure in (pareto_figure(busy_board), curves_figure(curves, target, control_points)):
        text = json.dumps(figure)
        assert figure["layout"]["paper_bgcolor"] == "rgba(0,0,0,0)"
        assert '"color"' not in text
        assert '"fillcolor"' not in text


def test_curves_are_drawn_over_seconds_and_over_epochs_with_the_band(
    curves, target, control_points
):
    figure = curves_figure(curves, target, control_points)
    assert [view["name"] for view in figure["layout"]["meta"]["views"]] == ["seconds", "epochs"]
    over = {view: [t for t in figure["data"] if t["meta"]["view"] == view] for view in
            ("seconds", "epochs")}  # fmt: skip
    assert [trace["name"] for trace in over["seconds"]] == ["run_0.log", "run_1.log", "run_2.log"]
    assert over["seconds"][0]["x"][:2] == pytest.approx([0.11, 0.22])
    band = [t for t in over["epochs"] if t["meta"]["paint"] == "band"]
    assert [len(trace["x"]) for trace in band] == [10, 10]
    assert band[1]["x"][-1] == pytest.approx(10.0)
    assert figure["layout"]["shapes"][0]["y0"] == 97.5


def test_the_band_lies_at_the_epochs_of_the_evaluations(target):
    curve = [{"epoch": 0.5 * j, "seconds": float(j), "quality": 50.0} for j in (1, 2)]
    points = [{"index": j, "mean": 50, "lower": 40, "upper": 60} for j in (1, 2, 3)]
    figure = curves_figure([{"file": "a.log", "curve": curve}], target, points)
    assert trace_named(figure, "control-point band")["x"] == [0.5, 1.0, 1.5]


def test_the_band_keeps_its_place_where_evaluations_are_left_out(target):
    curve = [
        {"index": j, "epoch": 0.5 * j, "seconds": float(j), "quality": 50.0} for j in (1, 5, 9)
    ]
    points = [{"index": j, "mean": 50, "lower": 40, "upper": 60} for j in (1, 2, 9, 10)]
    figure = curves_figure([{"file": "a.log", "curve": curve}], target, points)
    assert trace_named(figure, "control-point band")["x"] == [0.5, 1.0, 4.5, 5.0]


def test_logs_without_epochs_are_drawn_over_evaluations(target):
    curve = [{"epoch": None, "seconds": 7200.0 * j, "quality": 50.0} for j in (1, 2)]
    figure = curves_figure([{"file": "a.log", "curve": curve}], target)
    labels = [view["label"] for view in figure["layout"]["meta"]["views"]]
    assert labels == ["minutes", "evaluations"]
    assert [trace["x"] for trace in figure["data"]] == [[120.0, 240.0], [1, 2]]
    thinned = [point | {"index": 7 * place} for place, point in enumerate(curve, start=1)]
    figure = curves_figure([{"file": "a.log", "curve": thinned}], target)
    assert [trace["x"] for trace in figure["data"]] == [[120.0, 240.0], [7, 14]]


TARGET = {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"}


def test_each_batch_size_is_a_view_with_its_runs_their_mean_and_their_band():
    band = [{"index": 1, "mean": 50.0, "lower": 40.0, "upper": 60.0}]
    sizes = [{"batch_size": 32, "band": band}, {"batch_size": 64, "band": []}]
    runs = [{"batch_size": 32, "quality": [49.0, 97.6]}, {"batch_size": 64, "quality": [45.0]}]
    figure = calibration_figure(sizes, runs, TARGET)

    names = [(t["name"], t["meta"]["view"]) for t in figure["data"]]
    assert names == [
        ("lower limit", "batch size 32"),
        ("control-point band", "batch size 32"),
        ("a run", "batch size 32"),
        ("mean", "batch size 32"),
        ("a run", "batch size 64"),
    ]
    assert figure["data"][2]["x"] == [1, 2]
    views = figure["layout"]["meta"]["views"]
    assert [view["name"] for view in views] == ["batch size 32", "batch size 64"]


def test_the_largest_shift_of_a_band_keeps_its_sign():
    shifts = [{"mean_difference": value} for value in (0.5, -2.0, 1.0)]
    assert largest_shift(shifts) == -2.0
    assert largest_shift([]) is None


def curve(*epochs):
    return [{"epoch": e, "seconds": 100.0 * i, "quality": 90.0 + i} for i, e in enumerate(epochs)]


def submission(hardware, *curves):
    runs = [{"file": f"run_{i}.log", "curve": each} for i, each in enumerate(curves)]
    return {"hardware": hardware, "submitter": "alice", "curves": runs}


def test_each_submission_has_one_colour_one_shape_and_one_place_in_the_legend():
    one = submission("<b>fast</b>", curve(1.0, 2.0), curve(1.0, 2.0))
    both = [one, submission("slow", curve(1.0, 4.0))]
    figure = overlaid_curves(both, ["<b>fast</b>", "slow"], TARGET)
    shown = [t for t in figure["data"] if t["meta"]["view"] == "seconds"]

    assert [t["meta"]["series"] for t in shown] == [0, 0, 1]
    assert [t["showlegend"] for t in shown] == [True, False, True]
    assert shown[0]["marker"]["symbol"] != shown[2]["marker"]["symbol"]
    assert shown[0]["name"] == "A &lt;b&gt;fast&lt;/b&gt;"
    assert {t["type"] for t in figure["data"]} == {"scatter"}
    by_epoch = [t for t in figure["data"] if t["meta"]["view"] == "epochs"]
    assert by_epoch[-1]["x"] == [1.0, 4.0]


def test_a_log_without_epochs_is_drawn_by_evaluation():
    figure = overlaid_curves([submission("a", curve(None, None))] * 2, ["a", "b"], TARGET)
    assert [v["name"] for v in figure["layout"]["meta"]["views"]] == ["seconds", "evaluations"]
    assert figure["data"][1]["x"] == [1, 2]
    thinned = [point | {"index": 5} for point in curve(None)]
    figure = overlaid_curves([submission("a", thinned)] * 2, ["a", "b"], TARGET)
    assert figure["data"][1]["x"] == [5]


def test_run_times_stand_beside_the_interval_of_their_mean():
    one = {"hardware": "a", "submitter": "s", "run_seconds": [600.0, 660.0, 720.0],
           "tta_seconds": 660.0, "tta_low_seconds": 540.0, "tta_high_seconds": 780.0}  # fmt: skip
    single = one | {"run_seconds": [1200.0], "tta_low_seconds": None, "tta_high_seconds": None}
    missed = single | {"run_seconds": [], "tta_seconds": None}
    figure = run_times_figure([one, missed, single], ["fast", "missed", "slow"])

    first, second, interval = figure["data"]
    assert (first["name"], second["name"]) == ("A fast", "C slow")
    assert first["y"] == [10.0, 11.0, 12.0]
    assert first["x"] == [-0.25, 0.0, 0.25]
    assert (second["x"], second["y"]) == ([2], [20.0])
    assert interval["y"] == [9.0, 13.0]
    assert interval["showlegend"] is True
    assert figure["layout"]["xaxis"]["ticktext"] == ["A", "B", "C"]


def traces(figure):
    return {trace["name"]: trace for trace in figure["data"]}


def test_the_figure_has_envelope_limit_points_and_submissions(make):
    places = (make["place"](), make["place"](id="sub-2", verdict="fail", mean=5.0))
    found = traces(convergence_figure(make["convergence"](*places)))

    assert found["reference mean"]["x"] == [64, 4096]
    assert found["least epochs allowed"]["y"] == [7.9, 10.2]
    assert found["reference point"]["y"] == [8.5, 11.0]
    assert found["pruned point"]["x"] == [128]
    assert found["submission, passes"]["customdata"] == ["/submissions/sub-1"]
    assert found["submission, converges too fast"]["y"] == [5.0]


def test_the_limit_is_drawn_where_submissions_are_held_to_it(make):
    limit = traces(convergence_figure(make["convergence"](allowance=0.5)))["least epochs allowed"]
    assert limit["y"] == pytest.approx([7.4, 9.7])

    open_points = [p | {"lowest": None} for p in make["convergence"]()["points"]]
    free = make["convergence"](judged=False, points=open_points, envelope=open_points)
    assert "least epochs allowed" not in traces(convergence_figure(free))


def test_a_normalised_submission_says_so_where_it_is_pointed_at(make):
    places = (make["place"](normalised=True), make["place"](id="sub-2", normalised=False))
    raised, plain = traces(convergence_figure(make["convergence"](*places)))["submission, passes"][
        "text"
    ]

    assert raised.endswith(", normalised")
    assert "normalised" not in plain


def test_wide_axes_are_logarithmic(make):
    layout = convergence_figure(make["convergence"]())["layout"]

    assert layout["xaxis"]["type"] == "log"
    assert "type" not in layout["yaxis"]


def test_a_normalised_time_is_marked_on_the_board_and_shown_raw_on_its_page(make):
    entry = make["entry"](rcp=make["rcp"](), tta_seconds=106.25, raw_tta_seconds=100.0)
    plain = make["entry"](submission_id="sub-2", rcp=make["rcp"](factor=1.0))
    board = render(
        "benchmark.html",
        benchmark=make["benchmark"](),
        board=make["board"](entry, plain),
        filters={},
    )
    assert board.count('title="normalised by convergence, × 1.0625; as measured 100.000') == 1

    result = make["result"](rcp=make["rcp"](), tta_seconds=106.25, raw_tta_seconds=100.0)
    submission = make["submission"](result=result)
    page = render(
        "submission.html", **make["submission_page"](submission=submission, tab="scoring")
    )
    assert "106.25\u00a0s" in page
    assert "100.00\u00a0s" in page
    assert "normalised × 1.0625" in page


def test_each_pair_has_both_times_and_a_line_between_them(make):
    figure = duel_figure(make["duel"]()["duel"])
    joins, challenger, holder = figure["data"]

    go.Figure(json.loads(json.dumps(figure, allow_nan=False)))
    assert (challenger["x"], challenger["y"]) == ([1, 2, 3], [0.8, 0.82, 0.79])
    # The holder missed the target in the third pair.
    assert (holder["x"], holder["y"]) == ([1, 2], [1.0, 1.1])
    assert joins["x"] == [1, 1, None, 2, 2, None]
    assert joins["y"] == [0.8, 1.0, None, 0.82, 1.1, None]


def test_a_duel_without_pairs_has_an_empty_figure(make):
    figure = duel_figure(make["duel"]()["duel"] | {"pairs": []})
    assert [trace["x"] for trace in figure["data"]] == [[], [], []]


def test_every_run_of_a_side_has_its_colour_and_its_name(make):
    figure = replay_figure(make["duel"]())
    named = {trace["name"]: trace["meta"]["series"] for trace in figure["data"]}

    assert named == {
        "run 1 (challenger)": 0,
        "run 2 (holder)": 1,
        "run 3 (holder)": 1,
        "run 4 (challenger)": 0,
        "run 5 (challenger)": 0,
        "run 6 (holder)": 1,
    }
    assert side_of(make["verification"](), 0) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outcome": "challenger_faster"}, "The challenger is faster."),
        ({"outcome": "holder_faster"}, "The holder is faster."),
        ({"outcome": "not_separable"}, "These runs cannot tell the two apart."),
        ({"outcome": "inconclusive"}, "The duel of 6 runs is inconclusive."),
        ({"state": "queued", "outcome": None}, "Waiting for a worker to train 6 runs"),
        ({"state": "failed", "outcome": "inconclusive"}, "no result for either submission"),
    ],
)
def test_every_end_of_a_duel_is_one_sentence(make, changes, words):
    assert words in state_sentence(make["duel"](**changes))


def test_the_page_of_a_duel_shows_both_sides_and_every_pair(make, read):
    def of(name, count):
        return make["system"](accelerator=name, accelerator_count=count)

    page = render(
        "verification.html",
        **make["verification_page"](
            make["duel"](),
            submission=make["submission"](system=of("H200", 8)),
            against=make["submission"](system=of("L4", 1), id="sub-2"),
        ),
    )
    words = read(page)

    assert "8 × H200 by alice against 1 × L4 by alice" in words.replace("\u00a0", " ")
    assert 'href="/submissions/sub-2"' in page
    assert "0.800 s 8 epochs 1.000 s 9 epochs 0.800 challenger" in words
    assert "0.790 s 8 epochs missed – challenger" in words
    assert "challenger faster" in words
    assert '<figure class="chart figure" id="duel-chart">' in page
    assert "Run 2 holder" in words


def test_a_duel_that_runs_promises_its_pairs_and_one_that_failed_does_not(make, read):
    parts = {"submission": make["submission"](), "against": make["submission"]()}
    empty = make["duel"]()["duel"] | {"pairs": [], "time": None}
    running = make["duel"](state="running", outcome=None, report=None, duel=empty)
    failed = running | {"state": "failed", "outcome": "inconclusive"}

    words = read(render("verification.html", **make["verification_page"](running, **parts)))
    assert "The pairs are shown when the last run has ended." in words
    words = read(render("verification.html", **make["verification_page"](failed, **parts)))
    assert "The duel ended before its pairs did." in words


def test_a_submissions_duels_are_named_in_its_list(make, read):
    listed = {**make["submission"]()["verifications"][0], "kind": "duel", "id": "d-9"}
    submission = make["submission"](verifications=[listed])
    page = render(
        "submission.html", **make["submission_page"](submission=submission, tab="history")
    )
    assert "d-9 duel" in read(page)


# The records of CIFAR-10 training in DAWNBench that opened each year.
DAWNBENCH = [("2017-10-11", 349838.7), ("2018-01-31", 4075.0), ("2019-04-14", 73.8)]


def records(*rows):
    return [{"date": date, "tta_seconds": seconds} for date, seconds in rows]


def test_a_history_goes_down_in_steps_and_says_so_in_words():
    line = record_sparkline(records(*DAWNBENCH), time_format([73.8], "h:mm:ss"))

    assert line is not None
    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+){2}H[\d.]+", line.path)
    assert line.words == "3 records, from 97:10:39 on 2017-10-11 down to 0:01:14 on 2019-04-14"


def test_equal_ratios_are_equal_steps():
    # 100, 10 and 1 second: on a logarithmic scale the second stands half way down.
    line = record_sparkline(
        records(("2020-01-01", 100.0), ("2020-01-11", 10.0), ("2020-01-21", 1.0))
    )

    assert line is not None
    top, middle, bottom = (float(y) for y in re.findall(r"(?:V|^M[\d.]+ )([\d.]+)", line.path))
    assert middle - top == bottom - middle
    assert 0 < top < bottom < HEIGHT
    assert (line.end_x, line.end_y) == (WIDTH - 3, bottom)


def test_a_time_that_no_training_has_is_drawn_as_the_shortest_that_is_measured():
    def last(*seconds):
        line = record_sparkline(records(("2020-01-01", seconds[0]), ("2020-01-11", seconds[1])))
        assert line is not None
        return line.end_y

    assert last(1.0, 0.0) == last(1.0, 0.001) > last(0.001, 0.0)


def test_one_record_or_one_day_is_no_history():
    assert record_sparkline([]) is None
    assert record_sparkline(records(DAWNBENCH[0])) is None
    same_day = records(("2026-11-21T14:22:13+00:00", 9.0), ("2026-11-21T14:22:14+00:00", 8.0))
    assert record_sparkline(same_day) is None


def test_the_first_page_shows_the_line_with_its_words(make):
    history = [
        make["record"](date=date, tta_seconds=seconds, submission_id=date)
        for date, seconds in DAWNBENCH
    ]
    card = make["benchmark"]() | {"records": history, "time": time_format([73.8], "h:mm:ss")}
    page = render("home.html", benchmarks=[card], live=[], live_count=0, verdicts=[])

    words = "3 records, from 97:10:39 on 2017-10-11 down to 0:01:14 on 2019-04-14"
    assert f'role="img" aria-label="{words}"' in page
    assert 'href="/submissions/2019-04-14"' in page
