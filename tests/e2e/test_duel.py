"""A duel with real processes and real training on digits."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


def finishline(*arguments: str) -> str:
    """What the command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "finishline.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_defaults_and_smaller_batches_are_trained_in_turn(
    stack: Any, trained: Path, submit: Callable[[Path], Any], tmp_path: Path
) -> None:
    small = tmp_path / "small"
    finishline("run", "digits", "--runs", "3", "--set", "batch_size=32", "--out", str(small))
    before = [submit(trained), submit(small)]
    challenger, holder = (submission["id"] for submission in before)

    access = ("--url", stack.url, "--token", stack.token("organiser"))
    printed = finishline("duel", challenger, holder, "--pairs", "2", "--watch", *access)

    listed = stack.get("/verifications")["verifications"]
    (verification,) = [each for each in listed if each["kind"] == "duel"]
    view = stack.get(f"/verifications/{verification['id']}")
    assert (view["kind"], view["state"]) == ("duel", "done")
    runs = view["report"]["runs"]
    assert [run["status"] for run in runs] == ["reached"] * 4
    sizes = [table["batch_size"] for table in view["hyperparameters"]]
    assert sizes == [64, 32, 32, 64]
    # Of 1,198 images an epoch trains on as many as fill its batches: 18 of 64, or 37 of 32.
    samples = [run["evaluations"][0]["samples"] for run in runs]
    assert samples == [18 * 64, 37 * 32, 37 * 32, 18 * 64]
    for pair in view["duel"]["pairs"]:
        a, b = (runs[pair[side]["run"]]["tta_seconds"] for side in ("challenger", "holder"))
        assert pair["ratio"] == pytest.approx(a / b)
    assert view["outcome"] in ("challenger_faster", "holder_faster", "not_separable")
    assert f"{view['duel']['pairs'][0]['ratio']:.3f}" in printed
    assert "run 2 holder" in printed
    assert view["reasons"][0]["message"] in " ".join(printed.split())
    for submission in before:
        after = stack.get(f"/submissions/{submission['id']}")
        assert after["status"] == submission["status"]
