"""One run with a real training process, on trainers that need no torch and on the reference."""

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.scoring.run import Clock, Ledger, Phase
from finishline.rules.verification.control_points import control_points
from finishline.rules.verification.messages import ControlPoint, LatencyOrder, TargetSpec
from reference_models import digits
from worker.child_process import Host
from worker.settings import Settings
from worker.stopwatch import Stopwatch, clocks_disagree, is_below_band, is_reached
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


@pytest.mark.parametrize(
    ("precision", "code", "words"),
    [
        ("tf32", "precision_missing", "cpu cannot train in tf32: a processor has no TF32"),
        ("bf16", "bad_hyperparameter", "this reference chooses its own"),
    ],
)
def test_precision_that_is_not_there_is_refused_before_a_phase(
    train, make_job, precision, code, words
):
    run = train(make_job("climb", precision=precision))
    assert (run.failure.code, run.evaluations) == (code, [])
    assert run.ledger["init"] == sum(run.ledger.values()) < 10
    assert words in run.failure.message


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
from worker.outbox import Announcer
from worker.child_process import Host
from worker.training import train_run
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
    assert "provides no model to time" in run.failure.message
    assert run.latency == []


BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "digits.toml")


def test_digits_replay_reaches_its_target_within_its_band(make_job, announcer):
    curves = [run.quality for run in BENCHMARK.reference_runs_at(64)]
    points = control_points(curves, runs=3, alpha=0.01, resolution=BENCHMARK.target.resolution)
    job = make_job(
        "digits",
        seeds=(5,),
        hyperparameters=BENCHMARK.defaults(),
        data_set_sha256=BENCHMARK.data_set.sha256,
        control_points=tuple(points),
        run_limit_seconds=120,
    )
    host = Host(device="cpu", data_dir=Path("unused"))
    run = train_run(job, 0, host=host, announcer=announcer, stop=lambda: None)
    assert run.status == "reached", run
    assert 5 <= len(run.evaluations) <= 12
    assert run.tta_seconds < run.ledger["data"] + run.ledger["train"] + run.ledger["eval"] + 0.01
    assert run.ledger["init"] > run.ledger["data"]
    assert 0 < run.cpu_seconds < 1.2 * run.child_seconds  # one thread


@pytest.fixture
def train_group(host, announcer, monkeypatch, tmp_path):
    """Train on two processes; their folders are made in `tmp_path`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    group = replace(host, processes=2, data_dir=tmp_path)
    return lambda job, stop=lambda: None: train_run(
        job, 0, host=group, announcer=announcer, stop=stop
    )


def test_the_first_process_alone_tells_what_happens(train_group, make_job, tmp_path):
    run = train_group(make_job("climb", stop_at="end"))
    assert run.failure is None, run.log_tail
    assert [item.quality for item in run.evaluations] == [50.0, 80.0, 96.0, 98.0, 97.0, 99.0]
    assert list(tmp_path.glob("finishline-run-*")) == []


@pytest.mark.parametrize(
    ("reference", "code"),
    [("diverge_by_loss", "training_diverged"), ("fail_elsewhere", "device_unfit")],
)
def test_failure_of_any_process_is_the_failure_of_the_run(train_group, make_job, reference, code):
    run = train_group(make_job(reference))
    assert run.failure.code == code, run.log_tail


def test_killed_process_ends_the_run_with_what_was_measured(train_group, make_job):
    run = train_group(make_job("killed_elsewhere"))
    assert run.failure.code == "child_died", run.log_tail
    assert [item.quality for item in run.evaluations] == [50.0]


def test_no_process_of_a_group_is_left_when_the_run_is_given_up(
    train_group, make_job, events, tmp_path
):
    def stop():
        return "cancelled" if any(event.kind == "evaluation" for event in events) else None

    run = train_group(make_job("hang_in_group", run_limit_seconds=90.0), stop)
    assert run.status == "cancelled", run.log_tail
    pids = [int((tmp_path / f"{rank}.pid").read_text()) for rank in (0, 1)]
    deadline = time.monotonic() + 20
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process of the group is left"
        time.sleep(0.01)


def test_real_training_on_two_processes_reaches_its_target(make_job, announcer):
    job = make_job(
        "digits",
        data_set_sha256=digits.DATA_SET_SHA256,
        target=90.0,
        run_limit_seconds=120.0,
        seeds=(3,),
    )
    host = Host(device="cpu", data_dir=Path("unused"), processes=2)
    run = train_run(job, 0, host=host, announcer=announcer, stop=lambda: None)
    assert run.status == "reached", run.log_tail
    assert run.evaluations[-1].quality >= 90.0
    assert run.evaluations[-1].samples == len(run.evaluations) * (1198 // 64) * 64
    assert 0.0 < run.telemetry.communication_share < 1.0
    assert run.telemetry.communication_how.startswith("every exchange of gradients timed")


def test_setting_says_how_many_processes_and_refuses_none(monkeypatch):
    monkeypatch.setenv("FINISHLINE_PROCESSES", "2")
    assert Settings(broker_url="redis://x").processes == 2
    monkeypatch.setenv("FINISHLINE_PROCESSES", "0")
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Settings(broker_url="redis://x")


@pytest.fixture
def watch():
    """Started at 10 s: 2 s init, 3 s warm-up, 0.5 s data, 4 s training, 1 s evaluation."""
    watch = Stopwatch(10.0)
    watch.enter(Phase.WARMUP, 12.0)
    watch.enter(Phase.DATA, 15.0)
    watch.enter(Phase.TRAIN, 15.5)
    watch.enter(Phase.EVAL, 19.5)
    watch.stamp(20.5)
    return watch


def test_every_second_belongs_to_one_phase(watch):
    assert watch.ledger == Ledger(init=2.0, warmup=3.0, data=0.5, train=4.0, eval=1.0)
    assert watch.ledger.total() == 10.5


def test_run_starts_at_the_first_phase_after_the_preparation(watch):
    assert watch.started_at == 15.0


def test_run_has_not_started_during_warm_up():
    watch = Stopwatch(0.0)
    watch.enter(Phase.INIT, 0.5)
    watch.enter(Phase.COMPILE, 1.0)
    watch.enter(Phase.WARMUP, 2.0)
    assert watch.started_at is None


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [("mlperf", 5.5), ("dawnbench", 9.5), ("speedrun", 4.5)],
    ids=lambda value: str(value),
)
def test_the_benchmarks_clock_says_which_phases_count(watch, clock, seconds):
    assert watch.seconds(Clock(clock), division="closed") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("parent_seconds", "child_seconds", "disagree"),
    [
        (10.0, 10.0, False),
        (10.0, 9.76, False),  # 2 % of 10 s and 50 ms allow 0.25 s
        (10.0, 9.74, True),
        (10.0, 10.26, True),
        (0.1, 0.06, False),
        (0.1, 0.04, True),
    ],
)
def test_two_clocks_may_differ_by_two_percent_and_fifty_milliseconds(
    parent_seconds, child_seconds, disagree
):
    assert clocks_disagree(parent_seconds, child_seconds) is disagree


ACCURACY = TargetSpec("top1Accuracy", 97.5, "higher")


LOSS = TargetSpec("loss", 1.0, "lower")


@pytest.mark.parametrize(
    ("qualities", "reached"),
    [([], False), ([97.4], False), ([97.5], True), ([90.0, 97.6], True)],
)
def test_target_is_reached_at_or_above_its_value(qualities, reached):
    assert is_reached(qualities, ACCURACY) is reached


def test_a_loss_reaches_its_target_downwards():
    assert is_reached([1.2, 1.0], LOSS)
    assert not is_reached([1.2, 1.1], LOSS)


def test_sustained_target_needs_evaluations_in_a_row():
    twice = TargetSpec("top1Accuracy", 97.5, "higher", evaluations_in_a_row=2)
    assert not is_reached([98.0, 97.0, 98.0], twice)
    assert is_reached([98.0, 97.0, 98.0, 97.5], twice)


def test_a_run_with_a_fixed_stop_never_stops_at_its_target():
    stop = TargetSpec("loss", 1.0, "lower", fixed_stop=True)
    assert not is_reached([0.9, 0.8], stop)


POINTS = [
    ControlPoint(index=1, mean=50, lower=40, upper=60),
    ControlPoint(index=2, mean=80, lower=75, upper=85),
]


@pytest.mark.parametrize(
    ("qualities", "below"),
    [
        ([40.0], False),  # on the edge is inside
        ([39.9], True),
        ([61.0], False),  # above is for the server to judge
        ([50.0, 74.0], True),
        ([30.0, 80.0], False),  # the first evaluation had its turn
        ([50.0, 80.0, 1.0], False),  # no control point there
    ],
)
def test_only_the_latest_evaluation_below_its_control_point_stops(qualities, below):
    assert is_below_band(qualities, POINTS, ACCURACY) is below


def test_a_loss_is_below_the_band_when_it_is_larger():
    points = [ControlPoint(index=1, mean=2.0, lower=1.5, upper=2.5)]
    assert is_below_band([2.6], points, LOSS)
    assert not is_below_band([1.4], points, LOSS)
