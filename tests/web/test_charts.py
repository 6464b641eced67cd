"""Figures of charts and their tables: the points they draw.

Charts of a board are read over HTTP in tests/server/test_charts.py. Here are rules with numbers of
their own, and charts that a page draws itself.
"""

import re
from datetime import datetime, timedelta

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.web.views import (
    POINTS,
    TARGET,
    board,
    curve,
    entry,
    race,
    reported,
    run_set,
    system,
    verification,
)
from web.charts.curves import (
    MOST_EVALUATIONS,
    board_curves_chart,
    overlaid_curves,
    run_times_chart,
    runs_chart,
)
from web.charts.hardware import roofline_chart, scaling_families
from web.charts.parts import label, names_of, series_marks, time_axis
from web.charts.records import records_chart
from web.charts.spread import distribution_chart, quartiles
from web.charts.tradeoffs import front_entries, pareto_chart, thin_entries
from web.charts.verification import (
    calibration_chart,
    convergence_chart,
    head_to_head_chart,
    replay_chart,
)
from web.formats import SECONDS, TimeFormat
from web.marks import canary_line, record_line

MINUTES = TimeFormat("min")


def traces(drawn, **meta):
    """Traces by name. The plotly package refuses a figure that its library could not draw."""
    go.Figure(drawn.figure)
    return {
        trace["name"]: trace
        for trace in drawn.figure["data"]
        if meta.items() <= trace.get("meta", {}).items()
    }


def priced(name, seconds, usd, **changes):
    return entry(submission_id=name, tta_seconds=seconds, cost_usd=usd, **changes)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=12))
def test_front_holds_what_no_other_dominates(points):
    rows = [
        entry(submission_id=str(number), tta_seconds=float(time), cost_usd=float(cost))
        for number, (time, cost) in enumerate(points)
    ]
    dominated = {
        str(number)
        for number, mine in enumerate(points)
        if any(t <= mine[0] and c <= mine[1] and (t, c) != mine for t, c in points)
    }
    front = front_entries(rows, "cost_usd")

    assert {row["submission_id"] for row in front} == {r["submission_id"] for r in rows} - dominated
    assert [row["cost_usd"] for row in front] == sorted(row["cost_usd"] for row in front)


def test_front_of_quality_holds_the_best_at_each_time():
    qualities = {"fast": (10.0, 93.0), "good": (30.0, 96.0), "beaten": (40.0, 95.0)}
    rows = [
        entry(submission_id=name, tta_seconds=seconds, quality=quality)
        for name, (seconds, quality) in qualities.items()
    ]
    higher = front_entries(rows, "quality", more_is_better=True)
    lower = front_entries(rows, "quality")

    assert [row["submission_id"] for row in higher] == ["fast", "good"]
    assert [row["submission_id"] for row in lower] == ["fast"]


def test_of_five_thousand_the_front_and_a_sample_are_drawn():
    rows = [
        priced(f"s{i}", 100.0 + i, 9000.0 - (i if i % 50 == 0 else 0), rank=i + 1)
        for i in range(5000)
    ]
    front = front_entries(rows, "cost_usd")
    drawn = {row["submission_id"] for row in thin_entries(rows, front)}

    assert len(front) == 100
    assert {row["submission_id"] for row in front} <= drawn
    found = pareto_chart(
        {"board": board(*rows), "against": "cost", "target": TARGET, "time": SECONDS}
    )
    assert len(drawn) == sum(len(trace["x"]) for trace in found.figure["data"][1:]) == 500
    assert found.meta["note"].startswith("500 of 5,000 shown")


@pytest.mark.parametrize(
    ("low", "high", "within"),
    [
        (0.5, 5000.0, [1, 10, 100, 1000]),
        (2.0, 30.0, [2, 5, 10, 20]),
        (8.0, 21.0, [8, 10, 15, 20]),
        (73.0, 77.0, [73, 74, 75, 76, 77]),
    ],
)
def test_times_have_a_logarithmic_axis(low, high, within):
    found = time_axis(SECONDS, "Time", [low, high])
    assert found["type"] == "log"
    assert [at for at in found["tickvals"] if low <= at <= high] == pytest.approx(within)


def mark(name, date, seconds, **changes):
    nobody = {"submitter": "alice", "hardware": "8 × H100", "status": "verified", "model": name}
    figures = {"single_run": False, "beaten": None, "margin_percent": None, "p_value": None}
    known = {"submission_id": name, "date": date, "tta_seconds": seconds}
    return nobody | figures | {"evidence": "measured", "check": None} | known | changes


def test_records_are_steps_beside_what_was_no_record():
    reason = "not significantly faster than the record"
    lower = mark("lower", "2026-06-01T10:00:00+00:00", 14.9, holder="second", reason=reason)
    first, second = mark("first", "2026-01-10", 20.0), mark("second", "2026-05-01", 15.0)
    divisions = [{"division": "closed", "records": [first, second], "not_records": [lower]}]
    found = records_chart({"divisions": divisions, "note": None, "time": SECONDS})
    steps, others = found.figure["data"]

    assert steps["line"]["shape"] == "hv"
    assert steps["y"] == [20.0, 15.0, 15.0]
    assert steps["x"][-1] == others["x"][0] == "2026-06-01T10:00:00+00:00"
    assert others["y"] == [14.9]
    assert others["customdata"] == ["/submissions/lower"]
    assert reason in others["hovertext"][0]


def test_each_board_has_one_legend_entry():
    lower = mark("lower", "2026-06-01", 14.9, holder="first", reason="not proven: p = 0.08")
    first, other = mark("first", "2026-01-10", 20.0), mark("other", "2026-05-01", 15.0)
    divisions = [
        {"division": "open", "hardware_class": "h100", "records": [first], "not_records": [lower]},
        {"division": "open", "hardware_class": "cpu", "records": [other], "not_records": []},
    ]
    found = records_chart({"divisions": divisions, "note": None, "time": SECONDS})
    data = found.figure["data"]

    legend = [trace["name"] for trace in data if trace.get("showlegend", True)]
    assert legend == ["open, h100", "open, cpu"]


def test_records_of_one_day_have_an_axis_of_hours():
    dates = ("2026-06-01T10:00:00+00:00", "2026-06-01T10:20:00+00:00")
    marks = [mark(date, date, 20.0) for date in dates]
    divisions = [{"division": "open", "records": marks, "not_records": []}]
    figure = records_chart({"divisions": divisions, "note": None, "time": SECONDS}).figure

    low, high = map(datetime.fromisoformat, figure["layout"]["xaxis"]["range"])
    assert high - low < timedelta(hours=1)


def test_sparkline_has_equal_steps_for_equal_ratios():
    # 100, 10 and 1 second: on a logarithmic scale the second stands half way down.
    dates = zip(("2020-01-01", "2020-01-11", "2020-01-21"), (100.0, 10.0, 1.0), strict=True)
    line = record_line([{"date": date, "tta_seconds": seconds} for date, seconds in dates])

    top, middle, bottom, _ = (float(y) for y in re.findall(r"(?:V|^M[\d.]+ )([\d.]+)", line.path))
    assert middle - top == bottom - middle
    assert record_line([{"date": "2020-01-01", "tta_seconds": 9.0}]) is None


@pytest.mark.parametrize("seconds", [[3.0, 1.0, 2.0, 10.0], [5.5, 1.0, 2.0, 8.0, 9.0, 3.0, 3.0]])
def test_quartiles_are_those_of_numpy(seconds):
    assert quartiles(seconds) == pytest.approx(np.percentile(seconds, [25, 50, 75]).tolist())
    assert quartiles(seconds[:3]) == []


def test_spread_shows_every_run_that_reached():
    many = run_set(entry(submission_id="many"), 1.0, 2.0, 3.0, 4.0, None)
    few = run_set(entry(submission_id="few", evidence="claimed", check="none"), 2.0, None)
    drawn = distribution_chart({"sets": [many, few], "time": SECONDS})
    bars, medians, *dots = drawn.figure["data"]

    assert bars["x"] == [1.75, 3.25, None]
    assert medians["x"] == [2.5]
    assert [sorted(trace["x"]) for trace in dots] == [[1.0, 2.0, 3.0, 4.0], [2.0]]
    assert drawn.table.rows[0].cells[3:5] == ("5", "4")  # A run that missed is told.


def test_speed_up_is_against_the_smallest_of_a_family():
    def on(count, seconds, **changes):
        accelerated = system(accelerator="H200", accelerator_count=count)
        return (
            entry(submission_id=f"{count} {seconds}", tta_seconds=seconds, system=accelerated)
            | changes
        )

    others = [on(16, 90.0), on(32, 1.0, rank=None), on(16, 50.0, submitter="bob")]
    (family,) = scaling_families(board(on(32, 30.0), on(16, 60.0), on(8, 100.0), *others))

    # 8 take 100 s: 16 in 60 s are worth 8 × 100 / 60 of them, 32 in 30 s are worth 26.7.
    assert [step.accelerators for step in family.steps] == [8, 16, 32]
    assert [step.speed_up for step in family.steps] == pytest.approx([8.0, 40 / 3, 80 / 3])
    assert [step.efficiency for step in family.steps] == pytest.approx([1.0, 5 / 6, 5 / 6])


def test_series_differ_without_their_colour():
    assert len({tuple(series_marks(order).values()) for order in range(12)}) == 12


def test_names_are_what_tells_rows_apart():
    one = entry(submission_id="a", rank=1)
    two = entry(submission_id="b", rank=None, submitter="bob")
    other = entry(submission_id="c", rank=3, model="MLP")

    assert names_of([one, other]) == {"a": "1. digits-cnn", "c": "3. MLP"}
    assert names_of([one, two]) == {"a": "1. digits-cnn, alice", "b": "digits-cnn, bob"}


def test_long_name_keeps_its_end():
    long = "MUDD gates and Lightweight Dynamically Composable MHA (this pr v3)"
    assert label(long, lines=2) == "MUDD gates and Lightweight<br>…Composable MHA (this pr v3)"
    assert label("digits-cnn", lines=2) == "digits-cnn"


def test_curves_of_a_board_are_thinned_and_have_the_reference():
    one = run_set(entry(), 0.8, 0.9)
    one["runs"][0]["curve"] = [
        {"epoch": j / 10, "seconds": j, "samples": j, "quality": 50.0} for j in range(1, 2001)
    ]
    view = {"sets": [one], "target": TARGET, "reference": POINTS, "counts": "epochs"}
    figure = board_curves_chart(view | {"time": SECONDS})

    reference = traces(figure, view="epochs")["reference mean"]
    assert reference["y"] == [point["mean"] for point in POINTS]
    series = [t for t in figure.figure["data"] if t["meta"]["paint"] == "series"]
    assert [t["meta"]["view"] for t in series] == ["seconds", "epochs", "seconds", "epochs"]
    assert len(series[0]["x"]) == MOST_EVALUATIONS
    assert (series[1]["x"][0], series[1]["x"][-1]) == (0.1, 200.0)


def test_curves_of_a_submission_begin_near_the_target():
    runs = [{"file": f"run_{i}.log", "seconds": 9.0, "curve": curve(0.11 + i)} for i in range(2)]
    figure = runs_chart(runs, TARGET)

    seconds = traces(figure, view="seconds")
    assert seconds["run_1.log"]["x"] == pytest.approx([1.11 * j for j in range(1, 9)])
    assert seconds["run_1.log"]["y"] == [point["quality"] for point in runs[1]["curve"]]
    assert figure.figure["layout"]["shapes"][0]["y0"] == 97.5
    low, high = figure.figure["layout"]["yaxis"]["range"]
    assert 45.8 < low < 73.0, "a third of the evaluations is below"
    assert high > 98.1


def test_runs_of_one_evaluation_are_a_strip_of_times():
    ends = [(2.0, 2.0), (2.0, 2.0), (2.5, None)]
    runs = [
        {"file": f"run {i}", "seconds": reached, "curve": [curve(at)[0]]}
        for i, (at, reached) in enumerate(ends)
    ]
    (found,) = runs_chart(runs, TARGET).figure["data"]

    assert (found["x"], found["y"]) == ([2.0, 2.0, 2.5], [0, 1, 0])
    assert found["marker"]["symbol"] == ["circle", "circle", "circle-open"]


def test_runs_within_a_budget_are_a_strip_of_qualities():
    ends = [(20.0, 90.0), (24.0, 91.0), (26.0, 99.0)]
    runs = [
        {
            "file": f"run {i}",
            "seconds": at,
            "curve": [{"epoch": None, "seconds": at, "quality": at_end}],
        }
        for i, (at, at_end) in enumerate(ends)
    ]
    figure = runs_chart(runs, TARGET | {"budget_seconds": 25.0}).figure

    assert figure["data"][0]["x"] == [90.0, 91.0], "an evaluation after the budget doesn't count"
    assert "within 25 s" in figure["layout"]["xaxis"]["title"]["text"]


def test_logs_without_epochs_are_drawn_by_evaluation():
    points = [{"epoch": None, "seconds": 7200.0 * j, "quality": 50.0} for j in (1, 2)]
    for figure in (
        runs_chart([{"file": "a.log", "curve": points}], TARGET, time=MINUTES),
        overlaid_curves([compared("a", points)], ["a"], TARGET, MINUTES),
    ):
        assert [trace["x"] for trace in figure.figure["data"]] == [[120.0, 240.0], [1, 2]]


def compared(hardware, *curves):
    runs = [{"file": f"run_{i}.log", "curve": each} for i, each in enumerate(curves)]
    return {"hardware": hardware, "submitter": "alice", "curves": runs}


def test_compared_submissions_have_one_colour_each():
    both = [compared("fast", curve(), curve()), compared("slow", curve(0.2))]
    shown = [
        trace
        for trace in overlaid_curves(both, ["fast", "slow"], TARGET).figure["data"]
        if trace["meta"]["view"] == "seconds"
    ]
    assert [trace["meta"]["series"] for trace in shown] == [0, 0, 1]
    assert [trace["showlegend"] for trace in shown] == [True, False, True]
    assert shown[2]["x"] == pytest.approx([0.2 * j for j in range(1, 9)])


def test_run_times_stand_beside_the_interval_of_their_mean():
    one = {"hardware": "a", "submitter": "s", "run_seconds": [600.0, 660.0, 720.0],
           "tta_seconds": 660.0, "tta_low_seconds": 540.0, "tta_high_seconds": 780.0}  # fmt: skip
    single = one | {"run_seconds": [1200.0], "tta_low_seconds": None, "tta_high_seconds": None}
    missed = single | {"run_seconds": [], "tta_seconds": None}
    figure = run_times_chart([one, missed, single], ["fast", "missed", "slow"], MINUTES)

    first, second, interval = figure.figure["data"]
    assert (first["x"], first["y"]) == ([-0.25, 0.0, 0.25], [10.0, 11.0, 12.0])
    assert (second["x"], second["y"]) == ([2], [20.0])
    assert interval["y"] == [9.0, 13.0]


def test_convergence_has_envelope_limit_points_and_submissions():
    points = [
        {"batch_size": 64, "mean": 8.5, "stdev": 0.4, "lowest": 7.9, "pruned": False},
        {"batch_size": 128, "mean": 9.9, "stdev": 0.5, "lowest": 9.1, "pruned": True},
        {"batch_size": 4096, "mean": 11.0, "stdev": 0.5, "lowest": 10.2, "pruned": False},
    ]
    place = {"id": "sub-1", "submitter": "alice", "model": "cnn", "hardware": "CPU",
             "division": "closed", "batch_size": 64, "mean": 8.0, "verdict": "pass",
             "normalised": True}  # fmt: skip
    view = {"benchmark": "digits", "unit": "epochs", "judged": True, "allowance": 0.5,
            "points": points, "envelope": [p for p in points if not p["pruned"]],
            "submissions": [place, place | {"id": "sub-2", "verdict": "fail", "mean": 5.0}],
            "left_out": 0}  # fmt: skip
    figure = convergence_chart(view)
    found = traces(figure)

    assert figure.figure["layout"]["xaxis"]["type"] == "log"
    assert found["reference mean"]["x"] == [64, 4096]
    assert found["reference point"]["y"] == [8.5, 11.0]
    assert found["pruned point"]["x"] == [128]
    assert found["least epochs allowed"]["y"] == pytest.approx([7.4, 9.7])
    assert found["submission, passes"]["customdata"] == ["/submissions/sub-1"]
    assert found["submission, converges too fast"]["y"] == [5.0]


def test_calibration_has_a_view_for_each_batch_size():
    band = [{"index": 1, "mean": 50.0, "lower": 40.0, "upper": 60.0}]
    sizes = [{"batch_size": 32, "band": band}, {"batch_size": 64, "band": []}]
    runs = [{"batch_size": 32, "quality": [49.0, 97.6]}, {"batch_size": 64, "quality": [45.0]}]
    figure = calibration_chart(sizes, runs, TARGET)

    first = traces(figure, view="batch size 32")
    assert set(first) == {"lower limit", "control-point band", "a run", "mean"}
    assert (first["a run"]["x"], first["a run"]["y"]) == ([1, 2], [49.0, 97.6])
    assert traces(figure, view="batch size 64")["a run"]["y"] == [45.0]


def head_to_head():
    """Three pairs. The holder missed the target in the last one."""

    def run(number, seconds):
        return {"run": number, "seconds": seconds}

    times = [(0, 0.8, 1, 1.0), (3, 0.82, 2, 1.1), (4, 0.79, 5, None)]
    pairs = [
        {
            "number": number,
            "challenger": run(a, seconds),
            "holder": run(b, other),
            "ratio": other and seconds / other,
        }
        for number, (a, seconds, b, other) in enumerate(times, start=1)
    ]
    sides = ["challenger", "holder"]
    return {"pairs": pairs, "order": sides + sides[::-1] + sides}


def test_replay_has_its_band_in_its_table():
    found = replay_chart(reported())
    assert [title for title, _ in found.table.columns] == [
        "Run", "Evaluation", "Epoch", "Seconds", "Quality", "Band",
    ]  # fmt: skip
    assert len(found.table.rows) == 3 * 8
    assert found.table.rows[3].cells[-1] == "76.5 to 94.5"
    assert replay_chart(verification()).table.rows == ()
    assert replay_chart(verification(state="failed")).meta["empty"] == "No run was evaluated."


def test_each_pair_is_a_row_with_both_times_and_a_line_between_them():
    found = head_to_head_chart(head_to_head()["pairs"])
    joins, holder, challenger = found.figure["data"]

    assert (challenger["x"], challenger["y"]) == ([0.8, 0.82, 0.79], [0, 1, 2])
    assert (holder["x"], holder["y"]) == ([1.0, 1.1], [0, 1])
    assert joins["x"] == [1.0, 0.8, None, 1.1, 0.82, None]
    assert [row.cells[0] for row in found.table.rows] == ["1", "2", "3"]


def test_runs_of_a_side_have_its_colour():
    figure = replay_chart(
        verification(kind="head_to_head", head_to_head=head_to_head(), runs_planned=6)
    )
    found = [t for t in figure.figure["data"] if t["meta"].get("view") == "seconds"]
    drawn = [t for t in found if "run" in t["meta"]]
    a, b = "front", "status-measured"
    assert [trace["meta"]["paint"] for trace in drawn] == [b, a, a, b, b, a]
    assert [t["name"] for t in drawn if t["showlegend"]] == ["challenger", "holder"]


def test_replay_is_drawn_against_its_ghosts():
    figure = replay_chart(verification(), race())

    seconds, evaluations = traces(figure, view="seconds"), traces(figure, view="evaluations")
    assert seconds["run 1"]["x"] == [0.2, 0.4]
    assert seconds["run 2"]["x"] == []  # The page fills it as evaluations arrive.
    assert seconds["claimed runs, mean"]["x"] == pytest.approx([0.3 * j for j in range(1, 9)])
    assert evaluations["claimed runs, mean"]["x"] == list(range(1, 9))
    assert "control-point band" not in seconds, "it binds by evaluation"
    assert evaluations["control-point band"]["x"] == list(range(1, 11))


def test_roof_bends_where_bandwidth_and_arithmetic_meet():
    point = {"intensity": 20.0, "achieved_tflops": 40.0, "model": None, "benchmark": "digits",
             "precision": None, "bound": None, "attainable_tflops": 70.0,
             "share_of_attainable": 4 / 7, "verification_id": "v"}  # fmt: skip
    found = {"roofs": [{"precision": "bf16", "tflops": 700.0, "how": ""}],
             "copy_gb_per_second": 3500.0, "points": [point]}  # fmt: skip
    roof, dots = roofline_chart(found).figure["data"]

    assert roof["x"] == [2.0, 200.0, 2000.0]  # The ridge: 700 TFLOP/s by 3.5 TB/s.
    assert roof["y"] == pytest.approx([7.0, 700.0, 700.0])
    assert dots["y"] == [40.0]
    (flat,) = roofline_chart(found | {"copy_gb_per_second": None, "points": []}).figure["data"]
    assert set(flat["y"]) == {700.0}


def test_speed_check_is_of_the_latest_configuration():
    def reading(gflops, ratio, configuration="numpy"):
        baseline = None if ratio is None else 100.0
        return {"gflops": gflops, "ratio": ratio, "baseline_gflops": baseline, "moment": "before",
                "configuration": configuration, "measured_at": "2026-11-20T10:00:00Z"}  # fmt: skip

    line = canary_line([reading(94.0, 0.94), reading(101.0, 1.01), reading(900.0, None, "old")])
    top, middle, bottom = line.band
    assert top < middle < bottom < line.end[1]
    assert line.path.count("L") == 1
    assert canary_line([reading(None, None)]) is None
