"""?clock= and ?target= on a leaderboard: ranked again from the stored curves."""

import csv
import io
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.base.database import Database
from server.base.models import RunRow, Submission

BOARD = "/api/v1/leaderboards/digits"
# What tests/server/conftest.py writes: preparation of 2.2 s, evaluations of 4 ms, and at epochs
# 1 to 8 these qualities: 14.8, 45.8, 73.0, 85.5, 90.8, 95.6, 97.4, 98.1.
PREPARATION = 2.2

pytestmark = pytest.mark.usefixtures("claims_are_numbered", "shown_claims")


@dataclass(frozen=True)
class Two:
    """Two submissions: one trains fast, the other prepares fast."""

    quick_epochs: str
    quick_start: str


@pytest.fixture
def two(digits_submission: Any, submit: Callable[..., Any], make_log: Callable[..., bytes]) -> Two:
    """0.10 s an epoch, and 0.12 s an epoch: without init_start there is no preparation."""

    def send(pace: float, *, prepared: bool) -> str:
        parts = deepcopy(digits_submission)
        for index, name in enumerate(parts.logs):
            log = make_log(index, name=name, seconds_per_epoch=pace + 0.001 * index)
            lines = log.splitlines(keepends=True)
            if prepared:
                lines = [line for line in lines if b'"init_start"' not in line]
            parts.logs[name] = b"".join(lines)
        response = submit(parts)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    return Two(send(0.10, prepared=False), send(0.12, prepared=True))


def read(client: TestClient, **query: Any) -> Any:
    response = client.get(BOARD, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def times(board: Any) -> list[tuple[str, Any]]:
    return [
        (e["submission_id"], pytest.approx(e["tta_seconds"], abs=1e-5)) for e in board["entries"]
    ]


def test_another_clock_ranks_the_board_again(two: Two, client: TestClient) -> None:
    official = read(client)
    dawnbench = read(client, clock="dawnbench")
    speedrun = read(client, clock="speedrun")

    assert official["lens"] is None
    assert times(official) == [(two.quick_epochs, 0.84), (two.quick_start, 1.0)]
    assert times(speedrun) == [(two.quick_epochs, 0.808), (two.quick_start, 0.968)]
    assert times(dawnbench) == [
        (two.quick_start, 0.968),
        (two.quick_epochs, PREPARATION + 0.808),
    ]
    assert [e["rank"] for e in dawnbench["entries"]] == [1, 2]
    assert [e["not_separated_from"] for e in dawnbench["entries"]] == [None, None]
    assert dawnbench["entries"][0]["tta_display"] == "0:00:01"
    assert dawnbench["entries"][1]["cost_usd"] == pytest.approx(3.008 / 3600 * 0.1, rel=1e-4)


def test_another_target_ranks_by_the_first_evaluation_there(two: Two, client: TestClient) -> None:
    board = read(client, target=95.0)
    never = read(client, target=99.0)

    assert times(board) == [(two.quick_epochs, 0.63), (two.quick_start, 0.75)]
    assert [e["epochs_to_target"] for e in board["entries"]] == [6.0, 6.0]
    assert {e["rank"] for e in never["entries"]} == {None}
    assert {e["unranked_reason"] for e in never["entries"]} == {"did not reach the target"}
    assert {e["runs_reached"] for e in never["entries"]} == {0}


def test_a_lens_says_that_it_is_not_the_official_ranking(two: Two, client: TestClient) -> None:
    lens = read(client, clock="speedrun", target=95.0)["lens"]

    assert (lens["clock"], lens["target"]) == ("speedrun", 95.0)
    assert (lens["official_clock"], lens["official_target"]) == ("mlperf", 97.5)
    assert lens["note"] == (
        "Not the official ranking: on the speedrun clock, at top1Accuracy ≥ 95 percent. "
        "Official is the mlperf clock at 97.5 percent."
    )
    rows = list(csv.DictReader(io.StringIO(client.get(f"{BOARD}.csv?clock=speedrun").text)))
    assert {(row["lens_clock"], row["lens_target"]) for row in rows} == {("speedrun", "97.5")}


def test_the_own_clock_and_target_are_the_official_board(two: Two, client: TestClient) -> None:
    assert read(client, clock="mlperf", target=97.5) == read(client)
    assert read(client, clock="", target="") == read(client)


def test_a_run_without_a_ledger_is_not_ranked_under_another_clock_and_told_why(
    two: Two, client: TestClient, database: Database
) -> None:
    with database.write() as session:
        runs = select(RunRow).where(RunRow.submission_id == two.quick_epochs)
        for run in session.scalars(runs):
            run.curve = [row[:4] for row in run.curve]

    board = read(client, clock="dawnbench")

    first, last = board["entries"]
    assert (first["submission_id"], first["rank"]) == (two.quick_start, 1)
    assert (last["submission_id"], last["rank"], last["tta_seconds"]) == (
        two.quick_epochs,
        None,
        None,
    )
    reason = "no ledger: the log does not separate evaluation time"
    assert last["unranked_reason"] == reason
    assert times(read(client, target=95.0))[0] == (two.quick_epochs, 0.63)
    curve = client.get(f"/api/v1/submissions/{two.quick_epochs}/runs/0/curve")
    assert len(curve.json()["evaluations"]) == 8


def test_who_was_rejected_stays_unranked_for_that_reason(
    two: Two, client: TestClient, database: Database
) -> None:
    with database.write() as session:
        session.get_one(Submission, two.quick_epochs).status = "rejected"

    last = read(client, clock="speedrun")["entries"][-1]

    assert last["unranked_reason"] == "contradicted by its verification"


@pytest.mark.parametrize("suffix", ["", ".csv"])
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"clock": "sundial"}, "query.clock"),
        ({"target": "high"}, "query.target"),
        ({"target": "nan"}, "query.target"),
        ({"target": "inf"}, "query.target"),
        ({"target": -1}, "query.target"),
        ({"target": 100.5}, "query.target"),
    ],
)
def test_a_lens_that_makes_no_sense_is_422(
    query: dict[str, Any], field: str, suffix: str, client: TestClient
) -> None:
    response = client.get(BOARD + suffix, params=query)

    assert response.status_code == 422
    assert response.json()["problems"][0]["field"] == field


def test_a_range_that_is_left_is_told(client: TestClient) -> None:
    (problem,) = client.get(BOARD, params={"target": 101}).json()["problems"]

    assert problem["expected"] == "a top1Accuracy from 0 to 100 (percent)"


def test_pages_of_a_lens_follow_each_other(two: Two, client: TestClient) -> None:
    first = client.get(BOARD, params={"clock": "dawnbench", "limit": 1})
    second = client.get(first.links["next"]["url"])

    assert first.json()["entries"][0]["submission_id"] == two.quick_start
    assert second.json()["entries"][0]["submission_id"] == two.quick_epochs
    assert second.json()["lens"]["clock"] == "dawnbench"
