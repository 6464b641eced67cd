"""A replay as a race: ghosts and band in the chart, split times in the table."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from web.progress import chosen_ghost, ghost_label, off_class, signed, split_rows
from web.render import render
from web.replay_chart import replay_figure

View = dict[str, Any]
Make = dict[str, Callable[..., View]]


def ghost(role: str, *, pace: float, count: int = 8, **changes: Any) -> View:
    points = [
        {"index": j, "epoch": float(j), "seconds": pace * j, "quality": 90.0 + j, "runs": 3}
        for j in range(1, count + 1)
    ]
    return {
        "role": role,
        "is_own": role == "claim",
        "submission_id": "sub-9",
        "model": "fast net",
        "submitter": "bob",
        "hardware_class": "cpu-x86_64",
        "points": points,
    } | changes


@pytest.fixture
def race() -> View:
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


def test_splits_tell_how_far_a_run_is_off_its_ghost(make: Make, race: View) -> None:
    rows = split_rows(make["queued_verification"](), race, race["ghosts"][0])
    assert [row["index"] for row in rows] == list(range(1, 9))
    second = rows[1]["cells"][0]
    assert second["seconds_off"] == pytest.approx(0.4 - 0.2)
    assert second["quality_off"] == pytest.approx(93.0 - 92.0)
    assert rows[2]["cells"] == [None, None, None]


def test_a_run_beyond_its_ghost_has_a_time_and_no_difference(make: Make, race: View) -> None:
    short = ghost("claim", pace=0.3, count=1)
    second = split_rows(make["queued_verification"](), race, short)[1]
    assert second["ghost"] is None
    assert second["cells"][0]["seconds"] == 0.4
    assert second["cells"][0]["seconds_off"] is None


def test_a_long_race_has_forty_splits_at_most(make: Make, race: View) -> None:
    rows = split_rows(make["queued_verification"](), race, ghost("claim", pace=1.0, count=1000))
    assert [row["index"] for row in rows] == list(range(25, 1001, 25))


def test_the_ghost_that_is_asked_for_is_taken_else_the_first(race: View) -> None:
    chosen = [chosen_ghost(race, wanted) for wanted in ("claim", "record", None)]
    assert [one["role"] if one else None for one in chosen] == ["claim", "record", "record"]
    assert chosen_ghost({"ghosts": []}, "record") is None


def test_a_ghost_says_what_it_is() -> None:
    assert ghost_label(ghost("claim", pace=1)) == "the claim, mean of 3 runs"
    record = ghost("record", pace=1, is_own=False)
    assert ghost_label(record) == "the record, median run of fast net by bob"
    own = ghost_label(ghost("record", pace=1, is_own=True))
    assert own == "the claim's own median run: it holds the record"


@pytest.mark.parametrize(
    ("value", "text"), [(0.4, "+0.40 s"), (-0.3, "−0.30 s"), (-0.001, "±0.00 s"), (None, "–")]
)
def test_differences_have_a_sign(value: float | None, text: str) -> None:
    assert signed(value, " s") == text


def test_ahead_is_less_time_and_more_accuracy_or_less_loss() -> None:
    assert off_class(-0.1, lower_is_better=True) == "is-ahead"
    assert off_class(-0.1, lower_is_better=False) == "is-behind"
    assert off_class(0.0, lower_is_better=True) == "is-level"


def traces(figure: View, view: str, **meta: Any) -> list[View]:
    wanted = {"view": view} | meta
    return [t for t in figure["data"] if wanted.items() <= t["meta"].items()]


def test_time_comes_first_and_ghosts_are_in_both_views(make: Make, race: View) -> None:
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


def test_over_seconds_the_band_stands_at_the_pace_of_the_replay(make: Make, race: View) -> None:
    lower, upper = traces(
        replay_figure(make["queued_verification"](), race), "seconds", paint="band"
    )
    # The run took 0.2 s for each of its two evaluations; the rest goes on evenly.
    assert lower["x"] == upper["x"] == pytest.approx([0.2 * j for j in range(1, 11)])
    waiting = race | {"runs": []}
    figure = replay_figure(make["queued_verification"](), waiting)
    assert traces(figure, "seconds", paint="band")[0]["x"][0] == pytest.approx(0.3)


def test_a_replay_that_has_not_reported_has_an_empty_trace_for_every_run(make: Make) -> None:
    figure = replay_figure(make["queued_verification"](runs_planned=2))
    series = [t for t in figure["data"] if t["meta"]["paint"] == "series"]
    assert {(t["meta"]["run"], t["meta"]["view"]) for t in series} == {
        (0, "evaluations"),
        (0, "seconds"),
        (1, "evaluations"),
        (1, "seconds"),
    }
    assert all(trace["x"] == trace["y"] == [] for trace in series)


def test_a_finished_replay_is_drawn_from_its_report(make: Make) -> None:
    last = replay_figure(make["verification"]())["data"][-1]
    assert last["name"] == "run 3"
    assert last["y"][-1] == pytest.approx(98.5)
    assert len(last["x"]) == 8


def test_the_page_of_a_running_replay_is_a_snapshot_without_scripts(
    make: Make, race: View, read: Callable[[str], str], hostile: str
) -> None:
    race["ghosts"][0] |= {"model": hostile, "hardware_class": "gpu-h200"}
    page = render(
        "verification.html",
        verification=make["queued_verification"](state="running"),
        submission=make["submission"](),
        race=race,
        ghost=None,
        place=None,
    )
    words = read(page).replace("\u00a0", " ")
    assert "<script>alert" not in page
    assert re.search(r"Run 1 2 0\.400 s 93 % training", words)
    assert "0.400 s +0.20 s 93 % +1.00" in words
    assert "another hardware class: its times do not compare" in words
    assert 'href="/verifications/ver-1?ghost=claim#splits"' in page
    assert "snapshot" in words


def test_a_queued_page_says_its_place_and_what_nobody_knows(
    make: Make, read: Callable[[str], str]
) -> None:
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
        verification=make["queued_verification"](),
        submission=make["submission"](),
        place={"queue": queue, "item": item},
    )
    words = read(page)
    assert "3 of 3" in words
    assert "unknown no replay has ended yet" in words
    assert "none was ever seen" in words
