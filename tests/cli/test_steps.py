"""`finishline bench scale` and `profile` as a user runs them: real trainings of a few steps."""

import json
import time
from pathlib import Path

import pytest

from worker.commands.scale import fit_all_reduce, reckon_scaling

pytestmark = pytest.mark.nightly


def test_the_fit_finds_latency_and_rate_of_an_exact_all_reduce():
    points = [
        {"bytes": size, "seconds": 1e-4 + size * 2 * 3 / 4 / 1e9} for size in (1024, 65536, 4194304)
    ]
    fit = fit_all_reduce(points, 4)
    assert fit.latency_seconds == pytest.approx(1e-4)
    assert 1 / fit.seconds_per_byte == pytest.approx(1e9)
    assert fit.seconds(2_000_000, 2) == pytest.approx(1e-4 + 2e-3)


def test_a_paused_step_moves_neither_the_measured_nor_the_predicted_step():
    points = [{"bytes": size, "seconds": 1e-4 + size / 1e9, "n": 40} for size in (1024, 4194304)]
    steps = {
        (1, 64): [2.0, 2.0, 2.0, 90.0],
        (1, 32): [1.0, 1.0, 50.0, 1.0],
        (2, 64): [1.5, 1.5, 1.5, 70.0],
    }
    groups = {
        (processes, batch_size): {
            "step_seconds": seconds,
            "communication_seconds": [0.25 if processes > 1 else None] * 4,
            "gradient_bytes": 1_000_000,
            "all_reduce": points,
        }
        for (processes, batch_size), seconds in steps.items()
    }
    one, two = reckon_scaling(groups, {1: 64, 2: 64}, 64)["points"]
    assert (one["step_seconds"], two["step_seconds"]) == (2.0, 1.5)
    assert two["speedup"] == pytest.approx(2 / 1.5)
    assert two["predicted_step_seconds"] == pytest.approx(1.0 + 1e-4 + 1e-3)
    assert two["communication_share"] == pytest.approx(0.25 / ((3 * 1.5 + 70) / 4))
    del groups[1, 32]
    assert reckon_scaling(groups, {1: 64, 2: 64}, 64)["absent"] == {
        "points[0].communication_share": "nothing is exchanged",
        "points[1].predicted_step_seconds": "the reference takes no batch of 32 in one process",
    }


def test_two_processes_are_compared_with_one(finishline):
    """Under --weak each process has the whole batch; --strong is reckoned above."""
    done = finishline(
        "bench", "scale", "digits", "--processes", "1,2", "--weak", "--steps", "3", "--json"
    )
    assert done.code == 0, done.err
    document = json.loads(done.out)
    one, two = document["points"]
    assert (one["processes"], one["batch_size"], one["speedup"]) == (1, 64, 1.0)
    assert one["communication_share"] is None
    assert "points[0].communication_share" in document["absent"]
    assert two["batch_size"] == 128
    assert two["samples_per_second"] == pytest.approx(128 / two["step_seconds"])
    assert two["speedup"] == pytest.approx(two["samples_per_second"] / one["samples_per_second"])
    assert two["efficiency"] == pytest.approx(two["speedup"] / 2)
    assert 0 < two["communication_share"] < 1
    assert two["gradient_bytes"] == 4 * 97_802
    assert two["predicted_step_seconds"] > 0
    assert document["all_reduce"]["processes"] == 2
    sizes = [point["bytes"] for point in document["all_reduce"]["points"]]
    assert (min(sizes), max(sizes)) == (1024, 4 * 2**20)


def test_the_parts_of_a_step_add_up(finishline, tmp_path):
    out = str(tmp_path / "out")
    done = finishline("bench", "profile", "digits", "--steps", "3", "--out", out, "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    parts = document["parts_seconds"]
    assert set(parts) == {"data", "forward", "backward", "optimizer", "communication", "idle"}
    assert parts["communication"] is None
    assert "parts_seconds.communication" in document["absent"]
    assert min(parts[name] for name in ("data", "forward", "backward", "optimizer")) > 0
    total = sum(value for value in parts.values() if value is not None)
    assert total == pytest.approx(document["step_seconds"], rel=0.03)
    known = {name: value for name, value in parts.items() if value is not None}
    assert document["bottleneck"] == max(known, key=known.__getitem__)
    for points in document["cdf"].values():
        assert points == sorted(points)
        assert points[-1][1] == 1.0
    names = {event.get("name") for event in json.loads(Path(out, "trace.json").read_text())[
        "traceEvents"
    ]}  # fmt: skip
    assert {"data", "forward", "backward", "optimizer"} <= names
    assert not {one["name"] for one in document["operators"]} & {"data", "forward"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("scale", "nothing", "--strong"), "There is no benchmark 'nothing'"),
        (("scale", "digits"), "Choose one of --strong and --weak"),
        (("scale", "digits", "--strong", "--weak"), "Choose one of --strong and --weak"),
        (("scale", "digits", "--weak", "--processes", "0"), "--processes is '0'"),
        (("scale", "digits", "--weak", "--processes", "1,9999"), "--processes is '1,9999'"),
        (("scale", "digits", "--weak", "--processes", "two"), "--processes is 'two'"),
        (("scale", "digits", "--strong", "--steps", "0"), "--steps"),
        (("profile", "nothing", "--out", "."), "There is no benchmark 'nothing'"),
        (("profile", "digits", "--out", "/dev/null/x"), "Cannot write in /dev/null/x"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(finishline, arguments, said):
    done = finishline("bench", *arguments)
    assert done.code not in (0, None)
    assert said in done.err
    assert not done.out


def test_missing_data_is_said_before_anything_is_warmed_up(finishline, tmp_path):
    began = time.monotonic()
    given = ("--steps", "2", "--out", str(tmp_path / "x"), "--data", str(tmp_path))
    done = finishline("bench", "profile", "cifar10", *given)
    assert done.code not in (0, None)
    assert "finishline benchmark fetch cifar10" in done.err
    assert time.monotonic() - began < 30  # Compiling and warming up take more than that.
