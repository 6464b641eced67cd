"""A replay as a race, and submissions side by side."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from web.compare import (
    against,
    compare_link,
    comparison_groups,
    neighbour_names,
    only_differences,
    pair_sentence,
    probability,
    side_names,
)
from web.formats import SECONDS, TimeFormat
from web.names import byline, hardware
from web.progress import (
    chosen_ghost,
    expected_evaluations,
    ghost_label,
    off_class,
    replay_rows,
    signed,
    split_rows,
    state_sentence,
    whole_runs,
)
from web.race import runs_picture, verification_picture, whiskers
from web.render import render
from web.replay_chart import replay_figure

View = dict[str, Any]


Make = dict[str, Callable[..., Any]]


def ghost(role, *, pace, count=8, **changes):
    points = [
        {"index": j, "epoch": float(j), "seconds": pace * j, "quality": 90.0 + j, "runs": 3}
        for j in range(1, count + 1)
    ]
    return {
        "role": role,
        "is_own": role == "claim",
        "submission_id": "sub-9",
        "model": "fast net",
        "hardware": "8 × H100",
        "submitter": "bob",
        "hardware_class": "cpu-x86_64",
        "points": points,
    } | changes


@pytest.fixture
def race():
    """One run of three has made two evaluations."""
    evaluations = [
        {"epoch": 1.0, "seconds": 0.2, "quality": 50.0},
        {"epoch": 2.0, "seconds": 0.4, "quality": 93.0},
    ]
    return {
        "attempt": 1,
        "runs": [{"index": 0, "status": None, "evaluations": evaluations}],
        "ghosts": [ghost("record", pace=0.1, is_own=False), ghost("claim", pace=0.3)],
        "why_no_record": None,
    }


def test_splits_tell_how_far_a_run_is_off_its_ghost(make, race):
    rows = split_rows(make["queued_verification"](), race, race["ghosts"][0])
    assert [row["index"] for row in rows] == list(range(1, 9))
    second = rows[1]["cells"][0]
    assert second["seconds_off"] == pytest.approx(0.4 - 0.2)
    assert second["quality_off"] == pytest.approx(93.0 - 92.0)
    assert rows[2]["cells"] == [None, None, None]


def test_a_run_beyond_its_ghost_has_a_time_and_no_difference(make, race):
    short = ghost("claim", pace=0.3, count=1)
    second = split_rows(make["queued_verification"](), race, short)[1]
    assert second["ghost"] is None
    assert second["cells"][0]["seconds"] == 0.4
    assert second["cells"][0]["seconds_off"] is None


def test_a_long_race_has_forty_splits_at_most(make, race):
    rows = split_rows(make["queued_verification"](), race, ghost("claim", pace=1.0, count=1000))
    assert [row["index"] for row in rows] == list(range(25, 1001, 25))


def test_the_ghost_that_is_asked_for_is_taken_else_the_first(race):
    chosen = [chosen_ghost(race, wanted) for wanted in ("claim", "record", None)]
    assert [one["role"] if one else None for one in chosen] == ["claim", "record", "record"]
    assert chosen_ghost({"ghosts": []}, "record") is None


def test_a_ghost_says_what_it_is():
    assert ghost_label(ghost("claim", pace=1)) == "the claim, mean of 3 runs"
    record = ghost("record", pace=1, is_own=False)
    assert ghost_label(record) == "the record, median run of 8 × H100 by bob"
    own = ghost_label(ghost("record", pace=1, is_own=True))
    assert own == "the claim's own median run: it holds the record"


@pytest.mark.parametrize(
    ("value", "text"), [(0.4, "+0.40 s"), (-0.3, "−0.30 s"), (-0.001, "±0.00 s"), (None, "–")]
)
def test_differences_have_a_sign(value, text):
    assert signed(value, " s") == text


def test_a_mean_number_of_runs_is_told_in_whole_ones():
    assert [whole_runs(runs) for runs in (3.5, 4.0)] == ["3 to 4", "4"]


def test_ahead_is_less_time_and_more_accuracy_or_less_loss():
    assert off_class(-0.1, lower_is_better=True) == "is-ahead"
    assert off_class(-0.1, lower_is_better=False) == "is-behind"
    assert off_class(0.0, lower_is_better=True) == "is-level"


def traces(figure, view, **meta):
    wanted = {"view": view} | meta
    return [t for t in figure["data"] if wanted.items() <= t["meta"].items()]


def test_time_comes_first_and_ghosts_are_in_both_views(make, race):
    figure = replay_figure(make["queued_verification"](), race)
    assert [view["name"] for view in figure["layout"]["meta"]["views"]] == [
        "seconds",
        "evaluations",
    ]
    (record,) = traces(figure, "seconds", ghost="record")
    assert record["x"][:2] == pytest.approx([0.1, 0.2])
    (claim,) = traces(figure, "evaluations", ghost="claim")
    assert claim["x"] == list(range(1, 9))
    assert record["line"]["dash"] != claim["line"]["dash"]


def test_over_seconds_the_band_stands_at_the_pace_of_the_replay(make, race):
    lower, upper = traces(
        replay_figure(make["queued_verification"](), race), "seconds", paint="band"
    )
    # The run took 0.2 s for each of its two evaluations; the rest goes on evenly.
    assert lower["x"] == upper["x"] == pytest.approx([0.2 * j for j in range(1, 11)])
    waiting = race | {"runs": []}
    figure = replay_figure(make["queued_verification"](), waiting)
    assert traces(figure, "seconds", paint="band")[0]["x"][0] == pytest.approx(0.3)


def test_the_axis_of_a_race_has_the_unit_of_its_board(make, race):
    figure = replay_figure(make["queued_verification"](), race, TimeFormat("min"))
    (record,) = traces(figure, "seconds", ghost="record")
    assert record["x"][:2] == pytest.approx([0.1 / 60, 0.2 / 60])
    assert figure["layout"]["xaxis"]["title"]["text"] == "Time on the clock (minutes)"


def test_a_replay_that_has_not_reported_has_an_empty_trace_for_every_run(make):
    figure = replay_figure(make["queued_verification"](runs_planned=2))
    series = [t for t in figure["data"] if t["meta"]["paint"] == "series"]
    assert {(t["meta"]["run"], t["meta"]["view"]) for t in series} == {
        (0, "evaluations"),
        (0, "seconds"),
        (1, "evaluations"),
        (1, "seconds"),
    }
    assert all(trace["x"] == trace["y"] == [] for trace in series)


def test_a_finished_replay_is_drawn_from_its_report(make):
    last = replay_figure(make["verification"]())["data"][-1]
    assert last["name"] == "run 3"
    assert last["y"][-1] == pytest.approx(98.5)
    assert len(last["x"]) == 8


def test_a_race_is_drawn_on_one_scale_with_its_ghosts(make, race):
    drawn = verification_picture(make["queued_verification"](state="running"), race)
    assert drawn is not None
    run, record, claim = drawn.lines

    assert (run.kind, record.kind, claim.kind) == ("series-0", "record", "claim")
    assert run.text == "0.400\u00a0s so far"  # 93 is below the target of 97.5.
    assert not run.reached
    assert record.text == "0.800\u00a0s"  # 90 + 8 at the eighth evaluation, 0.1 s each.
    assert claim.percent == pytest.approx(100)
    assert record.percent == pytest.approx(100 / 3)
    assert run.path == "M83.3 946.4L166.7 146.6"
    assert [tick.text for tick in drawn.y_ticks] == [f"{at}\u00a0%" for at in (60, 80, 100)]
    assert drawn.summary.startswith(
        "At the target: run 1 not yet, the record, median run of 8 × H100"
    )


def test_a_loss_race_is_won_below_the_target_and_a_miss_says_so():
    target = {"metric": "loss", "value": 1.0, "unit": "loss", "direction": "lower"}
    falls = [{"seconds": 60.0 * j, "quality": 3.0 - j} for j in range(1, 4)]
    stays = [{"seconds": 60.0 * j, "quality": 2.0} for j in range(1, 4)]
    drawn = runs_picture(
        [{"file": "a", "curve": falls}, {"file": "b", "curve": stays}],
        target,
        (),
        TimeFormat("min"),
    )
    assert drawn is not None

    assert [line.text for line in drawn.lines] == ["2.00\u00a0min", "missed"]
    assert [tick.text for tick in drawn.x_ticks] == ["1 min", "2 min", "3 min"]
    assert runs_picture([{"file": "a", "curve": []}], target) is None


def test_a_place_stands_among_its_neighbours_with_their_intervals():
    def place(name, seconds, low=None):
        high = None if low is None or seconds is None else 2 * seconds - low
        return {"place": "1", "name": name, "submission_id": name, "seconds": seconds,
                "low": low, "high": high}  # fmt: skip

    rows = whiskers([place("a", 10.0, 8.0), place("b", 14.0), place("c", None)], "b", SECONDS)
    assert [(row.name, row.is_own, row.text) for row in rows] == [
        ("a", False, "10.00\u00a0s"), ("b", True, "14.00\u00a0s"),
    ]  # fmt: skip
    assert rows[0].low is not None
    assert rows[0].high is not None
    assert 0 < rows[0].low < rows[0].at < rows[0].high < rows[1].at < 100
    assert whiskers([place("c", None)], "c", SECONDS) == []


def test_the_mean_of_a_claim_that_ends_below_the_target_did_not_miss_it():
    target = {"metric": "top1", "value": 99.9, "unit": "percent", "direction": "higher"}
    curve = [{"seconds": 1.0 * j, "quality": 90.0 + j} for j in range(1, 4)]
    drawn = runs_picture(
        [{"file": "a", "curve": curve}], target, [ghost("claim", pace=2.0, count=3)]
    )
    assert drawn is not None
    assert [line.text for line in drawn.lines] == ["missed", "until 6.00\u00a0s"]


def test_neighbours_of_one_person_are_told_apart():
    def row(model, **changes):
        claim = {
            "model": model, "trained_with": "reference", "hardware": "EPYC", "runs": (),
            "submitter": "ada", "system": {"name": "vm"}, "hyperparameters": {},
            "submitted_on": None, "submitted_at": "2026-11-27T00:00:00Z",
        }  # fmt: skip
        return claim | changes

    packages = [row(title, trained_with="package") for title in ("Plain SGD", "Momentum")]
    assert neighbour_names(packages) == ["Plain SGD · ada", "Momentum · ada"]
    claims = [row("net", hyperparameters={"batch_size": size}) for size in (32.0, 64.0)]
    alike = ["EPYC · ada, batch_size 32", "EPYC · ada, batch_size 64"]
    assert neighbour_names(claims) == alike
    assert neighbour_names([claims[0], row("net", submitter="bob")]) == ["EPYC · ada", "EPYC · bob"]


def test_the_page_of_a_running_replay_is_a_snapshot_without_scripts(make, race, read, hostile):
    race["ghosts"][0] |= {"model": hostile, "hardware_class": "gpu-h200"}
    page = render(
        "verification.html",
        **make["verification_page"](make["queued_verification"](state="running"), race=race),
    )
    words = read(page).replace("\u00a0", " ")
    assert re.search(r"Run 1 2 0\.400 s 93 % training", words)
    assert "0.400 s +0.20 s 93 % +1.00" in words
    assert "another hardware class: its times do not compare" in words
    assert 'href="/verifications/ver-1?ghost=claim#splits"' in page
    assert "snapshot" in words


def test_a_queued_page_says_its_place_and_what_nobody_knows(make, read):
    item = {
        "position": 3,
        "expected_start": None,
        "why_unknown": "no replay has ended yet",
        "asked_at": "2026-11-20T10:00:00Z",
    }
    queue = {
        "hardware_class": "cpu-x86_64",
        "workers": 0,
        "free": 0,
        "out": 0,
        "held": 0,
        "last_seen_at": None,
        "waiting_count": 3,
        "waiting": [item],
    }
    page = render(
        "verification.html",
        **make["verification_page"](
            make["queued_verification"](), place={"queue": queue, "item": item}
        ),
    )
    words = read(page)
    assert "3 of 3" in words
    assert "unknown no replay has ended yet" in words
    assert "none was ever seen" in words


def pair(**changes):
    return {
        "first": "a",
        "second": "b",
        "ratio": 0.8,
        "ratio_low": 0.75,
        "ratio_high": 0.9,
        "p_value": 0.001,
        "p_adjusted": 0.003,
        "p_faster": 0.9995,
        "p_one_run_faster": 0.96,
        "runs_needed": 4,
        "told_apart": True,
    } | changes


SINGLE = {"ratio_low": None, "ratio_high": None, "p_value": None, "p_adjusted": None,
          "p_faster": None, "runs_needed": None, "told_apart": False}  # fmt: skip


def said(of, pairs=3, runs=3):
    compared = [{"submission_id": each, "run_seconds": [1.0] * runs} for each in "ab"]
    comparison = {"submissions": compared, "pairs": [of] * pairs}
    return pair_sentence(of, comparison).replace("\u00a0", " ")


def test_a_gap_beyond_chance_is_said_with_its_interval_and_its_p_value():
    assert said(pair()) == (
        "A is significantly faster than B (p = 0.003, by Holm over 3 pairs): B takes 1.25 times "
        "as long as A (95 % interval 1.11 to 1.33). A run of A beats a run of B in 96 % of all "
        "pairs of runs."
    )
    slower = pair(ratio=1.25, ratio_low=1.1, ratio_high=1.4, p_one_run_faster=0.1, p_adjusted=1e-9)
    words = said(slower, pairs=1)
    assert words.startswith("B is significantly faster than A (p < 0.0001): A takes 1.25 times")
    assert "A run of B beats a run of A in 90 %" in words


def test_a_gap_within_chance_says_how_many_runs_would_tell():
    words = said(pair(told_apart=False, p_adjusted=0.3, runs_needed=1200))
    assert words.startswith(
        "These runs cannot tell A and B apart (p = 0.3, by Holm over 3 pairs; a gap under 6.7 % "
        "could not be seen): B takes"
    )
    assert words.endswith("A gap of this size needs 1,200 runs on each side to show.")
    # Runs that are there already cannot be what is missing: more pairs are tested at once.
    words = said(pair(told_apart=False, p_adjusted=0.1, runs_needed=3), runs=3)
    assert words.endswith("which may be chance.")


def test_a_single_run_and_no_run_tell_nothing():
    assert "a single run has no spread" in said(pair(**SINGLE))
    assert "no run that reached the target" in said(pair(**SINGLE, ratio=None))


def test_a_pair_is_seen_from_either_side():
    pairs = [pair()]
    seen = against(pairs, "b", "a")

    assert seen is not None
    assert (seen.ratio, seen.ratio_low, seen.ratio_high) == (1.25, 1 / 0.9, 1 / 0.75)
    assert seen.p_faster is not None
    assert abs(seen.p_faster - 0.0005) < 1e-12
    assert against(pairs, "a", "a") is None


def test_a_confidence_never_reads_as_certainty():
    assert [probability(p) for p in (None, 0.9999, 0.5, 0.0)] == [
        "–",
        "> 0.999",
        "0.500",
        "< 0.001",
    ]


def test_a_side_is_named_by_what_tells_it_apart(make):
    one = make["submission"](id="a")
    epyc = make["system"](name="box", accelerator=None, processor="AMD EPYC 9654")
    bare = make["system"](name="box", accelerator=None, processor="some processor")
    model, machine, settings = (
        one | change
        for change in (
            {"model": "narrow"},
            {"system": epyc},
            {"hyperparameters": {"batch_size": 128}},
        )
    )
    assert side_names([one, model]) == [one["model"], "narrow"]
    assert side_names([one | {"system": bare}, machine]) == ["CPU", "EPYC 9654"]
    assert side_names([one, settings])[1].startswith("batch_size 128")
    assert len(set(side_names([one, model, model | {"submitter": "bob"}]))) == 3
    assert side_names([one, one])[0] == f"{hardware(one)}, {byline(one)}"


def test_rows_say_whether_they_differ_and_by_how_much(make):
    one = make["submission"](id="a")
    system = make["system"](accelerator="H200", accelerator_count=8)
    settings = {"batch_size": 128, "warmup": 0.3}
    other = make["submission"](id="b", system=system, hyperparameters=settings)
    for each in (one, other):
        each |= {"precision": None, "precision_measured": None}

    groups = comparison_groups([one, other], make["benchmark"]()["target"], {"a": 1, "b": 2})
    rows = {row.name: row for group in groups for row in group.rows}

    assert [group.title for group in groups] == [
        "Result", "System", "Hyperparameters", "Submission",
    ]  # fmt: skip
    assert rows["batch_size"].differs
    assert rows["batch_size"].cells[1].text == "128"
    assert rows["batch_size"].cells[1].note == "2.00 × A"
    assert [cell.text for cell in rows["learning_rate"].cells] == ["0.02", "–"]
    assert not rows["Processor"].differs
    assert rows["Rank in its division"].cells[1].note is None
    assert "Precision claimed" not in rows
    left = {row.name for group in only_differences(groups) for row in group.rows}
    assert {"Accelerator", "Accelerators", "warmup", "batch_size"} <= left
    assert "Processor" not in left


def test_inference_entries_are_compared_by_what_they_state(make):
    entry = make["inference_submission"](id="a")
    groups = comparison_groups([entry, entry], make["benchmark"]()["target"], {})
    names = [row.name for row in groups[0].rows]
    assert names == ["Latency of one item", "Cost of 10,000 items", "Quality", "Evidence"]


def test_the_address_of_a_comparison_has_its_ids_in_one():
    assert compare_link(["a", "b"], rows="different") == "/compare?ids=a,b&rows=different"
    assert compare_link(["&x"]) == "/compare?ids=%26x"


NO_CLAIMED_LATENCY = {
    "code": "claim_has_no_latency",
    "weight": "leaves_open",
    "message": "The claim states no latency.",
    "numbers": {},
}


def test_runs_are_expected_to_reach_the_target_where_the_reference_does(make):
    assert expected_evaluations(make["verification"]()) == 8
    assert expected_evaluations(make["verification"](control_points=[])) is None


def test_a_loss_is_reached_from_above(make):
    falling = [{"index": i, "mean": m, "lower": m, "upper": m} for i, m in enumerate([3.0, 1.0], 1)]
    target = {"metric": "loss", "value": 1.5, "unit": "nats/byte", "direction": "lower"}
    assert expected_evaluations(make["verification"](control_points=falling, target=target)) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "queued", "outcome": None}, "Waiting for a worker"),
        ({"state": "running", "outcome": None}, "on worker-b. Attempt 2 starts again"),
        ({"state": "queued", "outcome": None}, "attempt 1 lost its worker, which is not charged"),
        ({"state": "queued", "outcome": None, "kind": "latency"}, "to train and time the model"),
        ({"state": "cancelled", "outcome": None}, "cancelled"),
        ({"state": "failed", "outcome": None}, "No attempt could finish"),
        ({"outcome": "verified"}, "supports the claim"),
        ({"outcome": "rejected"}, "contradicts the claim"),
        ({"outcome": "inconclusive"}, "could not confirm the claim"),
        ({"kind": "calibration", "outcome": None}, "The reference was measured in 3 runs."),
        (
            {"kind": "latency", "outcome": "inconclusive", "reasons": [NO_CLAIMED_LATENCY]},
            "the submission claims none to compare with",
        ),
        (
            {"kind": "calibration", "state": "cancelled", "outcome": None},
            "This calibration was cancelled, without a result for the reference.",
        ),
    ],
)
def test_every_state_is_one_sentence(make, changes, words):
    assert words in state_sentence(make["verification"](**changes))


def test_the_table_twin_has_every_evaluation_with_its_band(make):
    rows = replay_rows(make["verification"]())
    assert len(rows) == 3 * 8
    assert rows[3]["band"]["index"] == 4
    assert replay_rows(make["verification"](report=None)) == []
