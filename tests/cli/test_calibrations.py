"""calibrate and calibration against a server that gives canned answers."""

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from finishline.cli.calibration_tables import watch_calibration
from finishline.cli.client import ServerClient
from finishline.cli.screen import open_screen

if TYPE_CHECKING:
    from conftest import Finishline, StandIn


def size(finished: int, **changes: Any) -> dict[str, Any]:
    return {
        "batch_size": 64, "planned": 2, "finished": finished, "under_way": 0, "reached": finished,
        "epochs": [8.0] * finished, "mean": 8.25, "stdev": 0.5, "band": [],
    } | changes  # fmt: skip


RUNNING = {
    "id": "c1", "benchmark": "digits", "version": 3, "state": "running", "judges": False,
    "batch_sizes": [64], "runs": 2, "runs_planned": 2, "runs_finished": 0, "adopted_at": None,
    "sizes": [size(0)], "chunks": [],
}  # fmt: skip
DONE = RUNNING | {"state": "done", "runs_finished": 2, "sizes": [size(2)]}
POST = "POST /api/v1/calibrations"
GET = "GET /api/v1/calibrations/c1"


def test_calibrate_asks_for_runs_at_each_batch_size(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer(POST, RUNNING, status=201)
    ran = finishline(
        "calibrate", "digits", "--batch-sizes", "32,64", "--runs", "20", "--reason", "new torch",
        "--token", "fl_o",
    )  # fmt: skip
    assert ran.code == 0
    (asked,) = standin.asked
    assert json.loads(asked.body) == {
        "benchmark": "digits",
        "batch_sizes": [32, 64],
        "runs": 20,
        "reason": "new torch",
    }
    assert asked.headers["Authorization"] == "Bearer fl_o"
    assert "Calibration c1: number 3 of digits, running, 0 of 2 runs" in ran.out


def test_a_calibration_of_an_earlier_definition_is_not_said_to_judge(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    for outdated in (True, False):
        standin.answer(GET, DONE | {"judges": True, "outdated": outdated})
    said = finishline("calibration", "show", "c1").out
    assert "for an earlier definition: not used for new replays" in said
    assert "2 of 2 runs, used for new replays" in finishline("calibration", "show", "c1").out


@pytest.mark.parametrize(
    "options", ["", "--runs 2", "--batch-sizes 64", "--batch-sizes 6x4 --runs 2"]
)
def test_calibrate_says_what_it_needs(
    options: str, finishline: "Finishline", standin: "StandIn"
) -> None:
    ran = finishline("calibrate", "digits", *options.split())
    assert ran.code == 2
    assert "--batch-sizes" in ran.err
    assert standin.asked == []


@pytest.mark.parametrize(("state", "code"), [("done", 0), ("incomplete", 3), ("cancelled", 3)])
def test_watching_ends_with_the_calibration(
    state: str, code: int, finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer(POST, DONE | {"state": state}, status=201)
    ran = finishline(
        "calibrate", "digits", "--batch-sizes", "64", "--runs", "2", "--watch", "--json"
    )
    assert (ran.code, ran.json()["state"]) == (code, state)


def test_every_step_is_told_once(standin: "StandIn", capsys: pytest.CaptureFixture[str]) -> None:
    one = RUNNING | {"sizes": [size(0, under_way=1)]}
    for view in (RUNNING, one, one, DONE):
        standin.answer(GET, view)
    pauses: list[float] = []
    with ServerClient(standin.url) as server:
        ended = watch_calibration(server, RUNNING, open_screen(as_json=False), wait=pauses.append)
    assert ended == DONE
    assert len(pauses) == 4
    told = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert told == ["0 of 2 runs trained", "1 of 2 runs trained", "2 of 2 runs trained"]


def test_a_calibration_goes_on_with_more_runs(finishline: "Finishline", standin: "StandIn") -> None:
    standin.answer(GET, DONE)
    standin.answer(f"{POST}/c1/continue", RUNNING)
    ran = finishline("calibrate", "digits", "--continue", "c1", "--runs", "40", "--json")
    assert (ran.code, ran.json()["state"]) == (0, "running")
    assert json.loads(standin.asked[1].body) == {"batch_sizes": None, "runs": 40}


def test_a_calibration_of_another_benchmark_does_not_go_on(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer(GET, DONE)
    ran = finishline("calibrate", "cifar10", "--continue", "c1")
    assert (ran.code, len(standin.asked)) == (2, 1)
    assert "belongs to digits, not to cifar10" in ran.err


def test_show_has_a_line_for_each_batch_size(finishline: "Finishline", standin: "StandIn") -> None:
    standin.answer(GET, DONE | {"judges": True})
    out = finishline("calibration", "show", "c1").out
    assert "used for new replays" in out
    assert out.splitlines()[-1].split() == ["64", "2/2", "2", "8.25", "0.50", "–"]


def test_the_toml_holds_the_runs_that_went_to_their_end_and_what_made_them(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    system = {"processor": "x\n[evil]", "software": {"torch": "2.13.0", "numpy": "2.4"}}
    run = {"batch_size": 64, "seed": 7, "status": "reached", "quality": [50.0, 98.1234]}
    runs = [run | {"system": system}, run | {"seed": 8, "status": "failed", "system": system}]
    answer = {
        "id": "c1", "benchmark": "digits", "version": 3, "runs_sha256": "ab", "runs": runs,
        "created_at": "2026-11-21T10:00:00Z",
    }  # fmt: skip
    standin.answer(f"{GET}/runs", answer)
    out = finishline("calibration", "show", "c1", "--toml").out
    assert tomllib.loads(out) == {
        "reference_runs": [{"batch_size": 64, "seed": 7, "quality": [50.0, 98.1234]}]
    }
    assert "# Made on x [evil], numpy 2.4, torch 2.13.0." in out
    assert finishline("calibration", "show", "c1", "--runs", "--json").json() == answer


def test_list_compare_adopt_and_cancel(finishline: "Finishline", standin: "StandIn") -> None:
    standin.answer("GET /api/v1/calibrations", {"calibrations": [DONE]})
    comparison = {
        "first": "c1", "second": None, "benchmark": "digits",
        "sizes": [{"batch_size": 64, "first": {"mean": 8.0}, "second": {"mean": 8.5},
                   "difference": -0.5, "p_value": 0.0123,
                   "band": [{"mean_difference": -1.5}, {"mean_difference": 0.25}]}],
    }  # fmt: skip
    standin.answer(f"{GET}/compare", comparison)
    standin.answer(f"{POST}/c1/adopt", DONE)
    standin.answer(f"{POST}/c1/cancel", DONE)

    assert finishline("calibration", "list").out.splitlines()[-1].split()[:5] == [
        "c1", "digits", "3", "done", "2/2",
    ]  # fmt: skip
    compared = finishline("calibration", "compare", "c1", "c2").out.splitlines()[-1].split()
    assert compared == ["64", "8.00", "8.50", "-0.50", "0.0123", "1.50"]
    assert standin.asked[-1].path.endswith("/c1/compare?with=c2")
    assert finishline("calibration", "adopt", "c1", "--reason", "better").code == 0
    assert json.loads(standin.asked[-1].body) == {"reason": "better"}
    assert finishline("calibration", "cancel", "c1").code == 0
    assert finishline("calibration", "adopt", "c1").code == 2
