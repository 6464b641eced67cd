"""One run with a real training process, on trainers that need no torch and on the reference."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from finishline.rules.verification.messages import ControlPoint, LatencyOrder, TargetSpec
from reference_models import digits
from tests.support.processes import wait_for
from worker.child_process import Host
from worker.stopwatch import is_below_band, is_reached
from worker.training import train_run


@pytest.fixture
def train(host, announcer):
    def train(job, *, stop=lambda: None):
        return train_run(job, 0, host=host, announcer=announcer, stop=stop)

    return train


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def once_evaluated(events):
    def once_evaluated(reason):
        def stop():
            return reason if any(event.kind == "evaluation" for event in events) else None

        return stop

    return once_evaluated


def wait_until(condition):
    wait_for(condition, seconds=20, what="an end", pause=0.01)


BAND = ControlPoint(index=2, mean=90, lower=85, upper=95)  # The second evaluation has 80.
ABOVE = ControlPoint(index=1, mean=10, lower=5, upper=15)
LATER = ControlPoint(index=5, mean=99, lower=98, upper=100)  # The fifth has 97.


@pytest.mark.parametrize(
    ("asked", "status", "evaluations", "reached"),
    [
        ({"target": 96.0, "control_points": [ABOVE]}, "reached", 3, 3),
        ({"target": 96.0, "evaluations_in_a_row": 3}, "reached", 5, 5),  # 96, 98, 97 in a row
        ({"target": 99.9}, "not_reached", 6, None),
        ({"control_points": [ABOVE, BAND]}, "below_band", 2, None),
        ({"stop_at": "end", "control_points": [LATER]}, "reached", 6, 4),
        ({"stop_at": "end", "target": 99.9}, "not_reached", 6, None),
    ],
)
def test_run_stops_at_its_target_or_band(train, make_job, asked, status, evaluations, reached):
    run = train(make_job("climb", **asked))
    assert (run.status, run.failure) == (status, None)
    qualities = [50.0, 80.0, 96.0, 98.0, 97.0, 99.0]
    assert [item.quality for item in run.evaluations] == qualities[:evaluations]
    assert run.tta_seconds == (reached and run.evaluations[reached - 1].seconds)
    assert reached is None or run.tta_seconds > 0


@pytest.mark.parametrize("trainer", ["climb", "hang"])
def test_budget_ends_a_run_at_its_last_evaluation(train, make_job, trainer):
    """It trains past the target. One that hangs after an evaluation ends at its budget."""
    job = make_job(trainer, target=10.0)
    target = replace(job.target, fixed_stop=True, budget_seconds=1.5)
    run = train(replace(job, target=target))

    assert (run.status, run.failure) == ("reached", None)
    assert run.tta_seconds == run.evaluations[-1].seconds < 1.5
    assert run.evaluations[-1].quality == (99.0 if trainer == "climb" else 50.0)
    nothing = train(replace(job, target=replace(target, budget_seconds=1e-9)))
    assert (nothing.status, nothing.evaluations, nothing.tta_seconds) == ("not_reached", [], None)


def test_ledger_adds_up_to_the_time_of_the_run(train, make_job):
    run = train(make_job("climb", clock="dawnbench"))
    assert run.ledger["init"] > 0
    on_clock = sum(seconds for phase, seconds in run.ledger.items() if phase != "eval")
    assert run.tta_seconds == pytest.approx(on_clock)
    assert 2**20 < run.telemetry.memory_peak_bytes < 2**40
    assert run.telemetry.accelerator_memory_peak_bytes is None
    assert run.telemetry.communication_share is None


def test_what_a_trainer_prints_goes_to_the_log_and_not_into_the_events(train, make_job):
    run = train(make_job("chatter"))
    assert run.status == "reached"
    assert "hello from the trainer" in run.log_tail
    assert "hello from a subprocess" in run.log_tail


@pytest.mark.parametrize(
    ("reference", "message", "evaluations", "log"),
    [
        ("killed", "signal 9", 1, ""),
        ("crash", "exit code 1", 0, "KeyError: 'a bug in the trainer'"),
    ],
)
def test_dead_child_keeps_its_evaluations(train, make_job, reference, message, evaluations, log):
    run = train(make_job(reference))
    failure = run.status, run.failure.code, run.failure.kind
    assert failure == ("failed", "child_died", "infrastructure")
    assert (message in run.failure.message, log in run.log_tail) == (True, True)
    assert len(run.evaluations) == evaluations


@pytest.mark.parametrize("reference", ["hang", "hang_at_start"])
def test_hanging_child_is_killed_at_the_limit(train, make_job, reference):
    run = train(make_job(reference, run_limit_seconds=1.0))
    assert run.status == "failed"
    assert (run.failure.kind, run.failure.code) == ("time_limit", "run_time_limit")
    assert "1 s" in run.failure.message


def test_a_slow_start_takes_nothing_from_the_limit_of_a_run(train, make_job):
    run = train(make_job("start_late", run_limit_seconds=3.0))

    assert (run.status, run.failure) == ("reached", None)
    assert run.ledger["init"] + run.tta_seconds > 3.0


def test_a_run_that_others_kept_from_the_processor_is_not_the_submitters(train, make_job):
    # It sleeps between its evaluations, as a training does whose processor is another's.
    run = train(make_job("march", target=99.9, run_limit_seconds=7.0))
    assert (run.failure.kind, run.failure.code) == ("infrastructure", "host_busy")
    assert "% of a processor when its limit of 7 s came" in run.failure.message
    assert len(run.evaluations) >= 2


TIMED = LatencyOrder(items=64, warmup_items=1, output_tolerance=0.1)


@pytest.mark.parametrize(
    ("reference", "asked", "code", "kind", "words"),
    [
        ("diverge", {}, "training_diverged", "submitter", ""),
        ("diverge_by_loss", {}, "training_diverged", "submitter", ""),
        ("out_of_memory", {"hyperparameters": {"batch_size": 48}}, "out_of_memory",
         "infrastructure", "cpu ran out of memory at a batch size of 48; choose"),
        ("fast_clock", {}, "clock_mismatch", "infrastructure", ""),
        ("no_such_reference", {}, "unknown_reference", "rules", ""),
        ("this", {}, "unknown_reference", "rules", ""),  # A module of that name is not imported.
        ("climb", {"hyperparameters": {"batch_size": -1}}, "bad_hyperparameter", "submitter",
         "hyperparameters.batch_size"),
        ("climb", {"data_set_sha256": "another"}, "data_set_differs", "rules", ""),
        ("climb", {"precision": "tf32"}, "precision_missing", "rules",
         "cpu cannot train in tf32: a processor has no TF32"),
        ("climb", {"precision": "bf16"}, "bad_hyperparameter", "submitter",
         "this reference chooses its own"),
        ("climb", {"latency": TIMED}, "unknown_reference", "rules",
         "provides no model to time"),
    ],
)  # fmt: skip
def test_failures_name_the_next_step(train, make_job, reference, asked, code, kind, words):
    run = train(make_job(reference, **asked))
    assert (run.status, run.failure.code, run.failure.kind) == ("failed", code, kind)
    assert run.failure.next_step
    assert words in run.failure.message
    assert run.tta_seconds is None


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        ("worker_stopped", "failed", "worker_stopped"),
        ("time_limit", "failed", "run_time_limit"),
        ("cancelled", "cancelled", None),
        ("fenced", "cancelled", None),
    ],
)
def test_run_stops_when_told_to(train, make_job, events, once_evaluated, reason, status, code):
    run = train(make_job("hang"), stop=once_evaluated(reason))
    assert run.status == status
    assert (run.failure.code if run.failure else None) == code
    assert events[-1].kind == "run_finished"


def test_everything_the_child_started_is_killed_with_it(train, make_job, once_evaluated):
    run = train(make_job("with_helper"), stop=once_evaluated("time_limit"))
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
from worker.outbox import Announcer
from worker.child_process import Host
from worker.training import train_run
from tests.support.processes import wait_for
from worker.link import decode

job = decode(sys.argv[1].encode(), ReplayJob)
host = Host(device="cpu", data_dir=Path("unused"), command=(sys.executable, sys.argv[2]))
train_run(job, 0, host=host, announcer=Announcer(lambda event: print(event.kind, flush=True)),
          stop=lambda: None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_no_training_survives_a_worker_that_is_killed(host, make_job):
    job = orjson.dumps(make_job("hang")).decode()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, job, host.command[1]], stdout=subprocess.PIPE
    )
    with parent.stdout:
        for line in parent.stdout:
            if line.strip() == b"evaluation":
                break
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text()
        [child_pid] = map(int, children.split())
        assert is_running(child_pid)
        parent.kill()
        parent.wait()
    wait_until(lambda: not is_running(child_pid))


@pytest.fixture
def train_group(host, announcer, monkeypatch, tmp_path):
    """Train on two processes; their folders are made in `tmp_path`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    group = replace(host, processes=2, data_dir=tmp_path)
    how = {"host": group, "announcer": announcer}
    return lambda job, stop=lambda: None: train_run(job, 0, stop=stop, **how)


@pytest.mark.parametrize(
    ("reference", "code", "evaluations"),
    [
        ("climb", None, 6),
        ("diverge_by_loss", "training_diverged", 0),
        ("fail_elsewhere", "device_unfit", 0),
        ("killed_elsewhere", "child_died", 1),
    ],
)
def test_first_process_tells_of_all(train_group, make_job, tmp_path, reference, code, evaluations):
    run = train_group(make_job(reference, stop_at="end"))
    assert (run.failure and run.failure.code) == code, run.log_tail
    assert len(run.evaluations) == evaluations
    assert list(tmp_path.glob("finishline-run-*")) == []


def test_no_process_of_a_group_is_left(train_group, make_job, once_evaluated, tmp_path):
    job = make_job("hang_in_group", run_limit_seconds=90.0)
    run = train_group(job, once_evaluated("cancelled"))
    assert run.status == "cancelled", run.log_tail
    pids = [int((tmp_path / f"{rank}.pid").read_text()) for rank in (0, 1)]
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def test_real_training_on_two_processes_reaches_its_target(make_job, announcer):
    how = {"data_set_sha256": digits.DATA_SET_SHA256, "run_limit_seconds": 120.0}
    job = make_job("digits", target=20.0, seeds=(3,), **how)
    host = Host(device="cpu", data_dir=Path("unused"), processes=2)
    run = train_run(job, 0, host=host, announcer=announcer, stop=lambda: None)
    assert run.status == "reached", run.log_tail
    assert run.evaluations[-1].quality >= 20.0
    assert run.evaluations[-1].samples == len(run.evaluations) * (1198 // 64) * 64
    assert 0.0 < run.telemetry.communication_share < 1.0
    assert run.telemetry.communication_how.startswith("every exchange of gradients timed")


ACCURACY = TargetSpec("top1Accuracy", 97.5, "higher")
LOSS = TargetSpec("loss", 1.0, "lower")
TWICE = TargetSpec("top1Accuracy", 97.5, "higher", evaluations_in_a_row=2)
FIXED = TargetSpec("loss", 1.0, "lower", fixed_stop=True)


@pytest.mark.parametrize(
    ("target", "qualities", "reached"),
    [
        (ACCURACY, [], False),
        (ACCURACY, [97.4], False),
        (ACCURACY, [90.0, 97.5], True),
        (LOSS, [1.2, 1.0], True),
        (LOSS, [1.2, 1.1], False),
        (TWICE, [98.0, 97.0, 98.0], False),
        (TWICE, [98.0, 97.0, 98.0, 97.5], True),
        (FIXED, [0.9, 0.8], False),
    ],
)
def test_target_is_reached_at_or_beyond_its_value(target, qualities, reached):
    assert is_reached(qualities, target) is reached


POINTS = [
    ControlPoint(1, mean=50, lower=40, upper=60),
    ControlPoint(2, mean=80, lower=75, upper=85),
]


@pytest.mark.parametrize(
    ("qualities", "target", "below"),
    [
        ([40.0], ACCURACY, False),  # on the edge is inside
        ([39.9], ACCURACY, True),
        ([61.0], ACCURACY, False),  # above is for the server to judge
        ([50.0, 74.0], ACCURACY, True),
        ([30.0, 80.0], ACCURACY, False),  # the first evaluation had its turn
        ([50.0, 80.0, 1.0], ACCURACY, False),  # no control point there
        ([61.0], LOSS, True),
        ([39.0], LOSS, False),
    ],
)
def test_only_the_latest_evaluation_below_its_control_point_stops(qualities, target, below):
    assert is_below_band(qualities, POINTS, target) is below
