"""Local trainings and benches as the commands see them: real processes."""

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from finishline.cli.benching import BenchOptions, bench_table, run_bench
from finishline.cli.definitions import find_benchmark
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.screen import open_console
from finishline.cli.training import Training, train_reference

pytestmark = pytest.mark.nightly


@dataclass(frozen=True)
class StandInTraining(Training):
    body: str = ""

    def command(self):
        return [sys.executable, "-c", self.body]


def training(tmp_path, body):
    return StandInTraining(Path("x.toml"), tmp_path, 1, body=body)


def test_the_command_line_names_all_that_was_asked_for(tmp_path):
    asked = Training(
        Path("b/digits.toml"), tmp_path, 3, settings=["batch_size=32"], seed=7, division="open"
    )
    assert asked.command()[-14:] == [
        "worker.local", "b/digits.toml", "--runs", "3", "--out", str(tmp_path),
        "--data-dir", "var/data",
        "--set", "batch_size=32", "--seed", "7", "--division", "open",
    ]  # fmt: skip


def test_events_come_while_it_runs_and_other_prints_are_passed_over(tmp_path):
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


def test_a_failed_training_says_its_last_line(tmp_path):
    body = (
        "import sys; print('warming up', file=sys.stderr); sys.exit('batch_size must be 1 or more')"
    )
    with pytest.raises(CliError, match="training failed: batch_size must be 1 or more") as caught:
        list(train_reference(training(tmp_path, body)))
    assert caught.value.exit_code is ExitCode.REFUSED


def test_a_training_that_could_not_begin_says_its_reason_alone(tmp_path):
    body = "import sys; print('error: no data', file=sys.stderr); sys.exit(2)"
    with pytest.raises(CliError, match=r"^no data$"):
        list(train_reference(training(tmp_path, body)))


def test_leaving_the_events_ends_the_training(tmp_path):
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


def test_an_unknown_benchmark_is_named_with_the_known_ones(tmp_path):
    (tmp_path / "digits.toml").touch()
    with pytest.raises(CliError, match=r"no benchmark 'mnist' in .*digits") as caught:
        find_benchmark("mnist", tmp_path)
    assert caught.value.exit_code is ExitCode.NOT_FOUND


THROUGHPUT = {
    "items_per_second": 6400.0, "slowest": 6000.0, "fastest": 6500.0, "items_per_call": 64,
}  # fmt: skip


RESULT: dict[str, Any] = {
    "benchmark": "digits",
    "training": THROUGHPUT,
    "inference": THROUGHPUT | {"items_per_call": 599},
    "to_target": {"epochs": 7.67, "epoch_seconds": 0.18, "training_seconds": 1.38},
    "telemetry": {
        "samples_per_joule": None, "energy_source": None, "power_mean_watts": None,
        "memory_peak_bytes": 2**28, "accelerator_memory_peak_bytes": None,
    },
    "precision": {"lowest": "fp32", "scope": "one training step"},
    "work": {"batch_size": 64, "step_flops": 9.13e8},
    "roofline": {
        "utilisation": 0.25, "achieved_flops": 9.13e10, "intensity": 111.8, "bound": "compute",
    },
    "roofs": {
        "gemm_fp32": {"value": 0.103, "unit": "TFLOP/s", "how": "matmul 256 x 256"},
        "all_reduce": {"value": None, "unit": "GB/s", "how": "absent: one device"},
    },
}  # fmt: skip


@dataclass(frozen=True)
class StandIn(BenchOptions):
    body: str = ""

    def command(self):
        return [sys.executable, "-c", self.body]


def options(body):
    return StandIn(Path("x.toml"), body=body)


def test_the_command_line_of_a_bench_names_all_that_was_asked_for():
    asked = BenchOptions(
        Path("b/digits.toml"), ["batch_size=32"], device="cuda", threads=4, seconds=2.0
    )
    assert asked.command()[-10:] == [
        "worker.bench", "b/digits.toml", "--threads", "4", "--seconds", "2.0",
        "--set", "batch_size=32", "--device", "cuda",
    ]  # fmt: skip


def test_progress_is_told_and_other_prints_are_passed_over():
    told = []
    body = (
        'print(\'{"kind": "doing", "doing": "roofs"}\')\n'
        "print('a library says hello')\n"
        f"print('''{json.dumps({'kind': 'result', 'result': RESULT})}''')\n"
    )
    assert run_bench(options(body), told=told.append) == RESULT
    assert told == ["measuring the roofs of this machine"]


def test_a_bench_that_fails_ends_with_its_last_words():
    body = "import sys; print('error: no such device', file=sys.stderr); sys.exit(2)"
    with pytest.raises(CliError, match=r"^no such device$"):
        run_bench(options(body), told=lambda _: None)


def test_a_bench_that_is_interrupted_leaves_no_process():
    body = (
        "import json, os, time\n"
        "print(json.dumps({'kind': 'doing', 'doing': str(os.getpid())}), flush=True)\n"
        "time.sleep(600)\n"
    )
    pids = []

    def interrupt(doing):
        pids.append(int(doing))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_bench(options(body), told=interrupt)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pids[0]}").exists():
        assert time.monotonic() < deadline, "the process is still there"
        time.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_the_table_shows_what_is_absent_as_absent_with_its_reason():
    console = open_console()
    with console.capture() as captured:
        console.print(bench_table(RESULT))
    text = captured.get()
    assert "6400 samples/s" in text
    assert "25 %" in text
    assert "256 MiB" in text
    (line,) = [line for line in text.splitlines() if line.startswith("all reduce")]
    assert "–" in line
    assert "one device" in line
    assert "None" not in text


def test_digits_is_measured_on_this_machine_in_one_document(finishline, tmp_path):
    out = tmp_path / "bench.json"
    done = finishline("bench", "digits", "--seconds", "0.1", "--out", str(out), "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document == json.loads(out.read_text())
    assert document["training"]["items_per_second"] > 0
    assert document["precision"]["lowest"] == "fp32"
    assert document["roofs"]["gemm_fp32"]["value"] > 0
    assert document["roofs"]["all_reduce"]["value"] is None


def test_an_unknown_benchmark_is_refused(finishline):
    done = finishline("bench", "nothing")
    assert done.code == 6
    assert "There is no benchmark 'nothing'" in done.err
