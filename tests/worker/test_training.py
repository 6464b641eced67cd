"""One run with a real training process, on trainers that need no torch."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from finishline.rules.verification.messages import ControlPoint, LatencyOrder
from worker.training import train_run
from worker.wire import encode


@pytest.fixture
def train(host, announcer):
    def train(job, *, stop=lambda: None):
        return train_run(job, 0, host=host, announcer=announcer, stop=stop)

    return train


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_run_stops_at_the_first_evaluation_at_its_target(train, make_job):
    run = train(make_job("climb", target=96.0))
    assert run.status == "reached"
    assert [item.quality for item in run.evaluations] == [50.0, 80.0, 96.0]
    assert run.tta_seconds == run.evaluations[-1].seconds > 0
    assert run.failure is None


def test_sustained_target_goes_on_after_a_dip(train, make_job):
    run = train(make_job("climb", target=96.0, evaluations_in_a_row=3))
    assert run.status == "reached"
    assert len(run.evaluations) == 5  # 96, 98, 97 in a row


def test_run_that_never_reaches_its_target_has_all_evaluations(train, make_job):
    run = train(make_job("climb", target=99.9))
    assert run.status == "not_reached"
    assert len(run.evaluations) == 6
    assert run.tta_seconds is None


def test_ledger_adds_up_to_the_time_of_the_run(train, make_job):
    run = train(make_job("climb", clock="dawnbench"))
    assert run.ledger["init"] > 0
    on_clock = sum(seconds for phase, seconds in run.ledger.items() if phase != "eval")
    assert run.tta_seconds == pytest.approx(on_clock)


def test_run_below_its_band_is_stopped(train, make_job):
    points = [
        ControlPoint(index=1, mean=50, lower=40, upper=60),
        ControlPoint(index=2, mean=90, lower=85, upper=95),
    ]
    run = train(make_job("climb", control_points=tuple(points)))
    assert run.status == "below_band"
    assert len(run.evaluations) == 2
    assert run.failure is None


def test_run_above_its_band_goes_on(train, make_job):
    points = (ControlPoint(index=1, mean=10, lower=5, upper=15),)
    assert train(make_job("climb", control_points=points)).status == "reached"


def test_run_to_its_end_passes_target_and_band_and_keeps_the_first_crossing(train, make_job):
    points = (ControlPoint(index=5, mean=99, lower=98, upper=100),)  # The fifth has 97.
    run = train(make_job("climb", stop_at="end", control_points=points))
    assert run.status == "reached"
    assert [item.quality for item in run.evaluations] == [50.0, 80.0, 96.0, 98.0, 97.0, 99.0]
    assert run.tta_seconds == run.evaluations[3].seconds
    assert run.tta_seconds < run.evaluations[5].seconds


def test_run_to_its_end_that_never_was_at_the_target_did_not_reach_it(train, make_job):
    run = train(make_job("climb", stop_at="end", target=99.9))
    assert (run.status, run.tta_seconds) == ("not_reached", None)
    assert len(run.evaluations) == 6


def test_what_a_trainer_prints_goes_to_the_log_and_not_into_the_events(train, make_job):
    run = train(make_job("chatter"))
    assert run.status == "reached"
    assert "hello from the trainer" in run.log_tail
    assert "hello from a subprocess" in run.log_tail


def test_a_run_tells_the_memory_its_training_took(train, make_job):
    telemetry = train(make_job("climb")).telemetry
    assert 2**20 < telemetry.memory_peak_bytes < 2**40
    assert telemetry.accelerator_memory_peak_bytes is None
    assert (telemetry.communication_share, telemetry.communication_how) == (None, None)
    assert telemetry.energy_joules is None


def test_killed_child_fails_its_run_and_keeps_its_evaluations(train, make_job):
    run = train(make_job("killed"))
    assert run.status == "failed"
    assert run.failure.code == "child_died"
    assert run.failure.kind == "infrastructure"
    assert "signal 9" in run.failure.message
    assert len(run.evaluations) == 1


def test_crashed_child_fails_its_run_with_its_traceback(train, make_job):
    run = train(make_job("crash"))
    assert run.failure.code == "child_died"
    assert "exit code 1" in run.failure.message
    assert "KeyError: 'a bug in the trainer'" in run.log_tail


@pytest.mark.parametrize("reference", ["hang", "hang_at_start"])
def test_hanging_child_is_killed_at_the_limit(train, make_job, reference):
    run = train(make_job(reference, run_limit_seconds=1.0))
    assert run.status == "failed"
    assert (run.failure.kind, run.failure.code) == ("time_limit", "run_time_limit")
    assert "1 s" in run.failure.message


def test_a_run_that_others_kept_from_the_processor_is_not_the_submitters(train, make_job):
    # It sleeps between its evaluations, as a training does whose processor is another's.
    run = train(make_job("march", target=99.9, run_limit_seconds=7.0))
    assert (run.failure.kind, run.failure.code) == ("infrastructure", "host_busy")
    assert "% of a processor when its limit of 7 s came" in run.failure.message
    assert len(run.evaluations) >= 2


@pytest.mark.parametrize(
    ("reference", "code", "kind"),
    [
        ("diverge", "training_diverged", "submitter"),
        ("diverge_by_loss", "training_diverged", "submitter"),
        ("out_of_memory", "out_of_memory", "infrastructure"),
        ("fast_clock", "clock_mismatch", "infrastructure"),
        ("no_such_reference", "unknown_reference", "rules"),
    ],
)
def test_failures_are_typed_and_name_the_next_step(train, make_job, reference, code, kind):
    run = train(make_job(reference))
    assert run.status == "failed"
    assert (run.failure.code, run.failure.kind) == (code, kind)
    assert run.failure.next_step
    assert run.tta_seconds is None


def test_memory_that_runs_out_in_any_reference_is_said_with_its_batch_size(train, make_job):
    run = train(make_job("out_of_memory", hyperparameters={"batch_size": 48}))
    assert run.failure.message.startswith("cpu ran out of memory at a batch size of 48; choose")


def test_reference_named_like_a_module_is_not_imported(train, make_job):
    assert train(make_job("this")).failure.code == "unknown_reference"


def test_refused_hyperparameter_is_named(train, make_job):
    run = train(make_job("climb", hyperparameters={"batch_size": -1}))
    assert run.failure.code == "bad_hyperparameter"
    assert "hyperparameters.batch_size" in run.failure.message


def test_other_data_set_than_the_jobs_is_refused(train, make_job):
    run = train(make_job("climb", data_set_sha256="another"))
    assert run.failure.code == "data_set_differs"
    assert run.evaluations == []


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        ("worker_stopped", "failed", "worker_stopped"),
        ("time_limit", "failed", "run_time_limit"),
        ("cancelled", "cancelled", None),
        ("fenced", "cancelled", None),
    ],
)
def test_run_stops_when_told_to(train, make_job, events, reason, status, code):
    def stop():
        evaluated = any(event.kind == "evaluation" for event in events)
        return reason if evaluated else None

    run = train(make_job("hang"), stop=stop)
    assert run.status == status
    assert (run.failure.code if run.failure else None) == code
    assert events[-1].kind == "run_finished"


def test_everything_the_child_started_is_killed_with_it(train, make_job, events):
    def stop():
        return "time_limit" if any(event.kind == "evaluation" for event in events) else None

    run = train(make_job("with_helper"), stop=stop)
    pids = [int(pid) for pid in re.findall(r"=(\d+)", run.log_tail)]
    assert len(pids) == 2
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def test_child_sees_no_secret_and_one_thread(train, make_job, monkeypatch):
    monkeypatch.setenv("FINISHLINE_WORKER_TOKEN", "secret")
    run = train(make_job("show_environment"))
    assert "names=[] threads=1" in run.log_tail


def test_child_that_cannot_be_started_by_its_command_fails_its_run(host, make_job, announcer):
    broken = replace(host, command=(sys.executable, "-c", "raise SystemExit(3)"))
    run = train_run(make_job(), 0, host=broken, announcer=announcer, stop=lambda: None)
    assert run.failure.code == "child_died"
    assert "exit code 3" in run.failure.message


PARENT = """
import sys
from pathlib import Path
from finishline.rules.verification.messages import ReplayJob
from worker.announcer import Announcer
from worker.child_process import Host
from worker.training import train_run
from worker.wire import decode

job = decode(sys.argv[1].encode(), ReplayJob)
host = Host(device="cpu", data_dir=Path("unused"), command=(sys.executable, sys.argv[2]))
train_run(job, 0, host=host, announcer=Announcer(lambda event: print(event.kind, flush=True)),
          stop=lambda: None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_no_training_survives_a_worker_that_is_killed(host, make_job):
    job = encode(make_job("hang")).decode()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, job, host.command[1]], stdout=subprocess.PIPE
    )
    with parent.stdout:
        for line in parent.stdout:
            if line.strip() == b"evaluation":
                break
        [child_pid] = [
            int(pid)
            for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        ]
        assert is_running(child_pid)
        parent.kill()
        parent.wait()
    wait_until(lambda: not is_running(child_pid))


def test_a_reference_without_a_model_to_time_fails_by_name(train, make_job):
    order = LatencyOrder(items=64, warmup_items=1, output_tolerance=0.1)
    run = train(make_job("climb", latency=order))
    assert (run.status, run.failure.code, run.failure.kind) == (
        "failed",
        "unknown_reference",
        "rules",
    )
    assert "gives no model to time" in run.failure.message
    assert run.latency == []
