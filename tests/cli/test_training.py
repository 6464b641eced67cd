"""The local training as the commands see it: a process that prints events, here a stand-in."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.training import Training, train_reference

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class StandInTraining(Training):
    body: str = ""

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.body]


def training(tmp_path: Path, body: str) -> Training:
    return StandInTraining(Path("x.toml"), tmp_path, 1, body=body)


def test_the_command_line_names_all_that_was_asked_for(tmp_path: Path) -> None:
    asked = Training(
        Path("b/digits.toml"), tmp_path, 3, settings=["batch_size=32"], seed=7, division="open"
    )
    assert asked.command()[-12:] == [
        "worker.local", "b/digits.toml", "--runs", "3", "--out", str(tmp_path),
        "--set", "batch_size=32", "--seed", "7", "--division", "open",
    ]  # fmt: skip


def test_events_come_while_it_runs_and_other_prints_are_passed_over(tmp_path: Path) -> None:
    body = (
        "import pathlib, sys, time\n"
        'print(\'{"kind": "evaluation", "run": 0, "quality": 9.5}\', flush=True)\n'
        "print('a library says hello', flush=True)\n"
        f"go = pathlib.Path({str(tmp_path / 'go')!r})\n"
        "deadline = time.monotonic() + 20\n"
        "while not go.exists() and time.monotonic() < deadline: time.sleep(0.01)\n"
        'print(\'{"kind": "run_finished", "run": 0, "status": "reached"}\')\n'
    )
    events = train_reference(training(tmp_path, body))
    assert next(events)["quality"] == 9.5
    (tmp_path / "go").touch()
    assert [event["kind"] for event in events] == ["run_finished"]


def test_a_failed_training_says_its_last_line(tmp_path: Path) -> None:
    body = (
        "import sys; print('warming up', file=sys.stderr); sys.exit('batch_size must be 1 or more')"
    )
    with pytest.raises(CliError, match="training failed: batch_size must be 1 or more") as caught:
        list(train_reference(training(tmp_path, body)))
    assert caught.value.exit_code is ExitCode.REFUSED


def test_leaving_the_events_ends_the_training(tmp_path: Path) -> None:
    body = (
        "import os, time\n"
        'print(\'{"kind": "phase", "run": 0, "pid": %d}\' % os.getpid(), flush=True)\n'
        "time.sleep(120)\n"
    )
    events = train_reference(training(tmp_path, body))
    pid = next(events)["pid"]
    began = time.monotonic()
    events.close()
    assert time.monotonic() - began < 20
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_unknown_benchmark_is_named_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "digits.toml").touch()
    with pytest.raises(CliError, match=r"no benchmark 'mnist' in .*digits") as caught:
        find_benchmark("mnist", tmp_path)
    assert caught.value.exit_code is ExitCode.NOT_FOUND
