"""A duel's figure and page."""

import json
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pytest

from web.progress import side_of, state_sentence
from web.render import render
from web.replay_chart import duel_figure, replay_figure

View = dict[str, Any]
Make = dict[str, Callable[..., View]]
Read = Callable[[str], str]


def test_each_pair_has_both_times_and_a_line_between_them(make: Make) -> None:
    figure = duel_figure(make["duel"]()["duel"])
    joins, challenger, holder = figure["data"]

    go.Figure(json.loads(json.dumps(figure, allow_nan=False)))
    assert (challenger["x"], challenger["y"]) == ([1, 2, 3], [0.8, 0.82, 0.79])
    # The holder missed the target in the third pair.
    assert (holder["x"], holder["y"]) == ([1, 2], [1.0, 1.1])
    assert joins["x"] == [1, 1, None, 2, 2, None]
    assert joins["y"] == [0.8, 1.0, None, 0.82, 1.1, None]


def test_a_duel_without_pairs_has_an_empty_figure(make: Make) -> None:
    figure = duel_figure(make["duel"]()["duel"] | {"pairs": []})
    assert [trace["x"] for trace in figure["data"]] == [[], [], []]


def test_every_run_of_a_side_has_its_colour_and_its_name(make: Make) -> None:
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
        ({"outcome": "not_separable"}, "The two are a statistical tie."),
        ({"outcome": "inconclusive"}, "The duel of 6 runs is inconclusive."),
        ({"state": "queued", "outcome": None}, "Waiting for a worker to train 6 runs"),
        ({"state": "failed", "outcome": "inconclusive"}, "no result for either submission"),
    ],
)
def test_every_end_of_a_duel_is_one_sentence(
    make: Make, changes: dict[str, Any], words: str
) -> None:
    assert words in state_sentence(make["duel"](**changes))


def test_the_page_of_a_duel_shows_both_sides_and_every_pair(make: Make, read: Read) -> None:
    page = render(
        "verification.html",
        verification=make["duel"](),
        submission=make["submission"](model="quick net"),
        against=make["submission"](model="old net", id="sub-2"),
    )
    words = read(page)

    assert "quick net against old net" in words
    assert 'href="/submissions/sub-2"' in page
    assert "0.800 s 8 epochs 1.000 s 9 epochs 0.800 challenger" in words
    assert "0.790 s 8 epochs missed – challenger" in words
    assert "challenger faster" in words
    assert 'data-chart="/verifications/ver-1/charts/duel.json"' in page
    assert "Run 2 holder" in words


def test_a_duel_that_runs_promises_its_pairs_and_one_that_failed_does_not(
    make: Make, read: Read
) -> None:
    parts = {"submission": make["submission"](), "against": make["submission"]()}
    empty = make["duel"]()["duel"] | {"pairs": [], "time": None}
    running = make["duel"](state="running", outcome=None, report=None, duel=empty)
    failed = running | {"state": "failed", "outcome": "inconclusive"}

    words = read(render("verification.html", verification=running, **parts))
    assert "The pairs are shown when the last run has ended." in words
    words = read(render("verification.html", verification=failed, **parts))
    assert "The duel ended before its pairs did." in words


def test_a_submissions_duels_are_named_in_its_list(make: Make, read: Read) -> None:
    listed = {**make["submission"]()["verifications"][0], "kind": "duel", "id": "d-9"}
    page = render("submission.html", submission=make["submission"](verifications=[listed]))
    assert "d-9 duel" in read(page)
