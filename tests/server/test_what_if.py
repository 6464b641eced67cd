"""?clock= and ?target= on a leaderboard, and charts under its filters and its clock and target."""

import re
from copy import deepcopy
from dataclasses import dataclass

import pytest
from sqlalchemy import select

from server.base.models import RunRow, Submission
from tests.support.boards import rows_of

BOARD = "/api/v1/leaderboards/digits"
# What tests/server/conftest.py writes: preparation of 2.2 s, evaluations of 4 ms, and at epochs
# 1 to 8 these qualities: 14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1.
PREPARATION = 2.2


@dataclass(frozen=True)
class Two:
    quick_epochs: str
    quick_start: str


@pytest.fixture
def two(digits_submission, publish, make_log):
    """0.10 s an epoch, and 0.12 s an epoch: without init_start there is no preparation."""

    def send(pace, *, prepared):
        parts = deepcopy(digits_submission)
        for index, name in enumerate(parts.logs):
            log = make_log(index, name=name, seconds_per_epoch=pace + 0.001 * index)
            lines = log.splitlines(keepends=True)
            if prepared:
                lines = [line for line in lines if b'"init_start"' not in line]
            parts.logs[name] = b"".join(lines)
        return publish(parts)

    return Two(send(0.10, prepared=False), send(0.12, prepared=True))


def read(client, **query):
    response = client.get(BOARD, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def times(board):
    return [(e["submission_id"], pytest.approx(e["tta_seconds"], abs=1e-5)) for e in rows_of(board)]


def test_another_clock_ranks_the_board_again(two, client):
    official = read(client)
    dawnbench = read(client, clock="dawnbench")
    speedrun = read(client, clock="speedrun")

    assert official["what_if"] is None
    assert times(official) == [(two.quick_epochs, 0.84), (two.quick_start, 1.0)]
    assert times(speedrun) == [(two.quick_epochs, 0.808), (two.quick_start, 0.968)]
    assert times(dawnbench) == [
        (two.quick_start, 0.968),
        (two.quick_epochs, PREPARATION + 0.808),
    ]
    assert [e["rank"] for e in rows_of(dawnbench)] == [1, 2]
    assert [e["not_separated_from"] for e in rows_of(dawnbench)] == [None, None]
    assert rows_of(dawnbench)[0]["tta_display"] == "0.968 s"
    page = client.get("/benchmarks/digits?clock=dawnbench").text
    assert re.findall('class="move [a-z]+" title="([^"]*)"', page) == [
        "1 better than in the official ranking",
        "1 worse than in the official ranking",
    ]
    assert 'class="move' not in client.get("/benchmarks/digits?clock=speedrun").text
    assert rows_of(dawnbench)[1]["cost_usd"] == pytest.approx(3.008 / 3600 * 0.1, rel=1e-4)


def test_another_target_ranks_by_the_first_evaluation_there(two, client):
    board = read(client, target=95.0)
    never = read(client, target=99.0)

    assert times(board) == [(two.quick_epochs, 0.63), (two.quick_start, 0.75)]
    assert [e["epochs_to_target"] for e in rows_of(board)] == [6.0, 6.0]
    assert {e["rank"] for e in rows_of(never)} == {None}
    assert {e["unranked_reason"] for e in rows_of(never)} == {"did not reach the target"}
    assert {e["runs_reached"] for e in rows_of(never)} == {0}


def test_a_what_if_view_says_that_it_is_not_the_official_ranking(two, client):
    what_if = read(client, clock="speedrun", target=95.0)["what_if"]

    for own in ({"clock": "mlperf", "target": 97.5}, {"clock": "", "target": ""}):
        assert read(client, **own) == read(client)
    assert (what_if["clock"], what_if["target"]) == ("speedrun", 95.0)
    assert (what_if["official_clock"], what_if["official_target"]) == ("mlperf", 97.5)
    assert what_if["note"] == (
        "Not the official ranking: on the speedrun clock, with at least 95 percent top-1 accuracy. "
        "Official is the mlperf clock at 97.5 percent."
    )


def test_a_run_without_a_ledger_has_no_other_clock(two, client, database):
    with database.write() as session:
        runs = select(RunRow).where(RunRow.submission_id == two.quick_epochs)
        for run in session.scalars(runs):
            run.curve = [row[:4] for row in run.curve]

    board = read(client, clock="dawnbench")

    first, last = rows_of(board)
    assert (first["submission_id"], first["rank"]) == (two.quick_start, 1)
    assert (last["submission_id"], last["rank"]) == (two.quick_epochs, None)
    assert last["tta_seconds"] is None
    reason = "no ledger: the log does not separate evaluation time"
    assert last["unranked_reason"] == reason
    assert times(read(client, target=95.0))[0] == (two.quick_epochs, 0.63)
    curve = client.get(f"/api/v1/submissions/{two.quick_epochs}/runs/0/curve")
    assert len(curve.json()["evaluations"]) == 8


def test_who_was_rejected_stays_unranked_for_that_reason(two, client, database):
    with database.write() as session:
        session.get_one(Submission, two.quick_epochs).status = "rejected"

    last = rows_of(read(client, clock="speedrun"))[-1]

    assert last["unranked_reason"] == "contradicted by its verification"


@pytest.mark.parametrize("suffix", ["", ".csv"])
def test_a_what_if_that_makes_no_sense_is_422(suffix, client):
    targets = ("high", "nan", "inf", -1, 100.5)
    for name, value in (("clock", "sundial"), *(("target", each) for each in targets)):
        response = client.get(BOARD + suffix, params={name: value})
        assert response.status_code == 422, value
        problem = response.json()["problems"][0]
        assert problem["field"] == f"query.{name}"
    assert problem["expected"] == "a top1Accuracy: a percent from 0 to 100"


def test_pages_of_a_what_if_view_follow_each_other(two, client):
    first = client.get(BOARD, params={"clock": "dawnbench", "limit": 1})
    second = client.get(first.links["next"]["url"])

    assert rows_of(first.json())[0]["submission_id"] == two.quick_start
    assert rows_of(second.json())[0]["submission_id"] == two.quick_epochs
    assert second.json()["what_if"]["clock"] == "dawnbench"


NAMES = ("pareto", "records", "curves", "distribution", "scaling")
PAGE = "/benchmarks/digits/charts"


@pytest.fixture
def two_systems(enter):
    one, two = ({"accelerator": "H200", "accelerator_count": count} for count in (1, 2))
    slow = enter(seconds_per_epoch=0.2, spread=0.004, model="slow", system=one)
    return slow, enter(seconds_per_epoch=0.11, spread=0.004, model="fast", system=two)


def figure(client, name, **query):
    response = client.get(f"{PAGE}/{name}.json", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def linked(page):
    return re.findall(r'href="/submissions/(\w+)"', page)


def test_every_chart_has_a_figure_and_a_page_with_the_same_as_a_table(two_systems, client):
    board = client.get("/benchmarks/digits").text
    assert 'href="/benchmarks/digits/charts?division=closed&amp;round=archive"' in board
    first = client.get(f"{PAGE}?division=closed").text
    assert f'data-chart="{PAGE}/distribution.json?division=closed"' in first
    for name in NAMES:
        page = client.get(f"{PAGE}/{name}")
        assert page.status_code == 200, name
        assert figure(client, name)["data"], name
        assert f'data-chart="{PAGE}/{name}.json"' in page.text
        assert set(linked(page.text)) == set(two_systems), name
        assert f'href="{PAGE}/{name}?division=closed' in first


def test_the_reference_stands_beside_the_curves(two_systems, client):
    drawn = figure(client, "curves")
    mean = next(trace for trace in drawn["data"] if trace["name"] == "reference mean")
    band = next(trace for trace in drawn["data"] if trace["name"] == "control-point band")

    assert mean["meta"]["view"] == "epochs"
    assert len(mean["x"]) >= 8
    assert all(y < upper for y, upper in zip(mean["y"], band["y"], strict=False))
    assert drawn["layout"]["shapes"][0]["y0"] == 97.5


def test_a_sample_of_a_long_curve_is_read(two_systems, client, monkeypatch):
    whole = client.get(f"{PAGE}/curves").text
    monkeypatch.setattr("server.pages.board_charts.MOST_EVALUATIONS", 3)
    drawn = [t for t in figure(client, "curves")["data"] if t["meta"]["paint"] == "series"]

    assert {len(trace["x"]) for trace in drawn} == {3}
    assert drawn[0]["x"][-1] == pytest.approx(8 * 0.11, rel=0.1)
    assert client.get(f"{PAGE}/curves").text == whole


def test_submissions_are_selected_by_id_once_or_with_commas(two_systems, client):
    slow, fast = two_systems
    assert linked(client.get(f"{PAGE}/distribution", params={"select": slow}).text) == [slow]
    both = client.get(f"{PAGE}/distribution", params={"select": f"{slow}, {fast}"}).text
    assert linked(both) == [slow, fast]
    repeated = client.get(f"{PAGE}/distribution?select={fast}&select={slow}").text
    assert linked(repeated) == [fast, slow]
    assert f'value="{slow}" checked' in repeated
    assert figure(client, "distribution", select="nobody")["layout"]["meta"]["empty"]
    many = ",".join(f"id{i}" for i in range(13))
    assert client.get(f"{PAGE}/distribution.json", params={"select": many}).status_code == 422


def test_filters_clock_and_target_of_the_board_hold_for_its_charts(two_systems, client):
    slow, fast = two_systems
    for name in ("pareto", "curves", "distribution"):
        assert set(linked(client.get(f"{PAGE}/{name}?q=slow").text)) == {slow}, name
    # Whichever page of the board was looked at, a chart is of all that fits.
    assert set(linked(client.get(f"{PAGE}/pareto?limit=1").text)) == {slow, fast}

    official = figure(client, "distribution", select=fast)["data"][0]["x"]
    earlier = figure(client, "distribution", select=fast, target=90)["data"][0]["x"]
    assert max(earlier) < max(official)
    at_ninety = figure(client, "curves", target=90)
    assert at_ninety["layout"]["shapes"][0]["y0"] == 90
    assert "Not the official ranking" in client.get(f"{PAGE}/curves?target=90").text


def test_records_are_those_of_everybody_and_say_so_under_filters(two_systems, client):
    drawn = figure(client, "records", q="slow")
    assert drawn["layout"]["meta"]["note"].startswith("Records belong to the official ranking")
    assert drawn["data"] == figure(client, "records")["data"]
    assert "note" not in figure(client, "records", division="closed")["layout"]["meta"]
    assert figure(client, "records", division="open")["data"] == []
    assert "How first place is decided" in client.get(f"{PAGE}/records").text


def test_times_are_set_against_what_is_asked_for(two_systems, client):
    page = client.get(f"{PAGE}/pareto?against=quality&division=closed").text

    assert 'href="?division=closed&amp;against=quality" aria-current="true"' in page
    assert "against=energy" not in page  # No row has one.
    assert f'data-chart="{PAGE}/pareto.json?division=closed&amp;against=quality"' in page
    axis = figure(client, "pareto", against="quality")["layout"]["xaxis"]
    assert axis["title"]["text"] == "Best quality"
    assert "No latency is measured yet" in client.get(f"{PAGE}/pareto?against=latency").text
    assert client.get(f"{PAGE}/pareto.json?against=luck").status_code == 422


def test_charts_of_a_measured_row_show_its_measured_runs(measured, client):
    """Its own logs are three times as fast as what the worker measured."""
    submission_id = measured(seconds_per_epoch=0.1, report={"seconds_per_epoch": 0.3})
    (entry,) = rows_of(read(client))
    assert (entry["submission_id"], entry["evidence"]) == (submission_id, "measured")

    for clock in ("mlperf", "speedrun"):
        (entry,) = rows_of(read(client, clock=clock))
        (runs,) = client.get(f"{PAGE}/distribution.json?clock={clock}").json()["data"]
        assert sorted(runs["x"])[1] == pytest.approx(entry["measured_seconds"])
    traces = client.get(f"{PAGE}/curves.json").json()["data"]
    curve = next(trace for trace in traces if trace["name"].startswith("1. "))
    assert curve["x"][-1] == pytest.approx(2.4, abs=0.1)


def test_a_chart_page_ignores_unknown_parameters(client):
    page = client.get(f"{PAGE}/curves?fbclid=1")
    assert page.status_code == 200
    assert "fbclid" not in page.text
    assert client.get(f"{PAGE}?utm_source=a").status_code == 200
    assert client.get(f"{PAGE}/curves?target=high").status_code == 422


def test_an_unknown_chart_is_404_and_names_those_there_are(client):
    response = client.get(f"{PAGE}/pie.json")

    assert response.status_code == 404
    assert "records, curves" in response.json()["detail"]
