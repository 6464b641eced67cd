"""Calibrate with real processes and real training on digits."""

import subprocess
import sys
import tomllib
from typing import Any

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


def finishline(stack: Any, *arguments: str) -> str:
    """What the command prints when the organiser runs it."""
    access = ("--url", stack.url)
    done = subprocess.run(
        [sys.executable, "-m", "finishline.cli.main", *arguments, *access],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_runs_of_the_reference_are_measured_to_their_end(stack: Any) -> None:
    token = ("--token", stack.token("organiser"))
    out = finishline(
        stack, "calibrate", "digits", "--runs", "2", "--batch-sizes", "64", "--watch", *token
    )

    assert "2 of 2 runs trained" in out
    (listed,) = stack.get("/calibrations")["calibrations"]
    assert (listed["state"], listed["runs_finished"]) == ("done", 2)
    runs = stack.get(f"/calibrations/{listed['id']}/runs")["runs"]
    # Every epoch, although digits is at its target after seven or eight of them.
    assert [len(run["quality"]) for run in runs] == [20, 20]
    assert all(run["quality"][-1] > 97.5 for run in runs)
    assert runs[0]["quality"] != runs[1]["quality"]
    assert all("torch" in run["system"]["software"] for run in runs)
    (size,) = stack.get(f"/calibrations/{listed['id']}")["sizes"]
    assert all(5 <= epochs <= 12 for epochs in size["epochs"])
    tables = tomllib.loads(finishline(stack, "calibration", "show", listed["id"], "--toml"))
    shipped = tables["reference_runs"]
    assert [(run["batch_size"], len(run["quality"])) for run in shipped] == [(64, 20)] * 2
    finishline(stack, "calibration", "compare", listed["id"])
