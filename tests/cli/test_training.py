"""Local trainings and benches as the commands see them: real processes."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from finishline.cli.errors import CliError, ExitCode
from finishline.cli.processes import Training, train_reference
from finishline.cli.screen import open_console
from worker.commands.train import reference_table

pytestmark = pytest.mark.nightly


@pytest.fixture
def standin_training(tmp_path, monkeypatch):
    def make(body):
        monkeypatch.setattr(Training, "command", lambda _: [sys.executable, "-c", body])
        return train_reference(Training(Path("x.toml"), tmp_path, 1))

    return make


def test_events_come_while_it_runs_and_other_prints_are_passed_over(standin_training, tmp_path):
    body = (
        "import pathlib, sys, time\n"
        'print(\'{"kind": "evaluation", "run": 0, "quality": 9.5}\', flush=True)\n'
        "print('a library says hello', flush=True)\n"
        f"go = pathlib.Path({str(tmp_path / 'go')!r})\n"
        "deadline = time.monotonic() + 20\n"
        "while not go.exists() and time.monotonic() < deadline: time.sleep(0.01)\n"
        'print(\'{"kind": "run_finished", "run": 0, "status": "reached"}\')\n'
    )
    events = standin_training(body)
    assert next(events)["quality"] == 9.5
    (tmp_path / "go").touch()
    assert [event["kind"] for event in events] == ["run_finished"]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("sys.exit('batch_size must be 1 or more')",
         "training failed: batch_size must be 1 or more"),
        ("print('error: no data', file=sys.stderr); sys.exit(2)", "^no data$"),
    ],
)  # fmt: skip
def test_a_failed_training_says_its_last_line(standin_training, last, said):
    with pytest.raises(CliError, match=said) as caught:
        list(standin_training(f"import sys; print('warming up', file=sys.stderr); {last}"))
    assert caught.value.exit_code is ExitCode.REFUSED


def test_leaving_the_events_ends_the_training(standin_training):
    body = (
        "import os, time\n"
        'print(\'{"kind": "phase", "run": 0, "pid": %d}\' % os.getpid(), flush=True)\n'
        "time.sleep(120)\n"
    )
    events = standin_training(body)
    pid = next(events)["pid"]
    began = time.monotonic()
    events.close()
    assert time.monotonic() - began < 20
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_digits_is_measured_on_this_machine_in_one_document(finishline, tmp_path):
    out = tmp_path / "bench.json"
    given = ("--seconds", "0.1", "--set", "batch_size=32", "--device", "cpu", "--threads", "1")
    done = finishline("bench", "train", "digits", *given, "--out", str(out), "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document == json.loads(out.read_text())
    assert document["training"]["items_per_second"] > 0
    assert document["work"]["batch_size"] == 32
    assert document["precision"]["lowest"] == "fp32"
    assert document["roofs"]["gemm_fp32"]["value"] > 0
    assert document["roofs"]["all_reduce"]["value"] is None
    console = open_console()
    with console.capture() as captured:
        console.print(reference_table(document))
    (line,) = [each for each in captured.get().splitlines() if each.startswith("all reduce")]
    assert ("–" in line, "two devices" in line, "None" in captured.get()) == (True, True, False)


def test_short_name_of_the_data_folder(finishline, tmp_path, monkeypatch):
    monkeypatch.setenv("FINISHLINE_DATA", str(tmp_path))
    monkeypatch.setenv("FINISHLINE_DATA_DIR", "")  # So that it is taken away again.
    monkeypatch.delenv("FINISHLINE_DATA_DIR")
    (tmp_path / "fashion-mnist").mkdir()  # Without it the data may lie where Debian puts them.

    ran = finishline("benchmark", "fetch", "fashion", "--check")

    assert ran.code == 1
    assert f"Data of fashion in {tmp_path}" in ran.out + ran.err
