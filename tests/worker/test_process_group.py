"""A training of two processes, with torch's launcher and pretended or real trainers."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from finishline.rules.benchmarks.benchmark import load_benchmark
from reference_models import digits
from worker.child_process import Host
from worker.settings import Settings
from worker.training import train_run

BENCHMARK = load_benchmark(Path(__file__).parents[2] / "benchmarks" / "digits.toml")


@pytest.fixture
def train(host, announcer, monkeypatch, tmp_path):
    """Train on two processes; their folders are made in `tmp_path`."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    group = replace(host, processes=2, data_dir=tmp_path)
    return lambda job, stop=lambda: None: train_run(
        job, 0, host=group, announcer=announcer, stop=stop
    )


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_first_process_alone_tells_what_happens(train, make_job, tmp_path):
    run = train(make_job("climb", stop_at="end"))
    assert run.failure is None, run.log_tail
    assert [item.quality for item in run.evaluations] == [50.0, 80.0, 96.0, 98.0, 97.0, 99.0]
    assert list(tmp_path.glob("finishline-run-*")) == []


@pytest.mark.parametrize(
    ("reference", "code"),
    [("diverge_by_loss", "training_diverged"), ("fail_elsewhere", "device_unfit")],
)
def test_failure_of_any_process_is_the_failure_of_the_run(train, make_job, reference, code):
    run = train(make_job(reference))
    assert run.failure.code == code, run.log_tail


def test_killed_process_ends_the_run_with_what_was_measured(train, make_job):
    run = train(make_job("killed_elsewhere"))
    assert run.failure.code == "child_died", run.log_tail
    assert [item.quality for item in run.evaluations] == [50.0]


def test_no_process_of_a_group_is_left_when_the_run_is_given_up(train, make_job, events, tmp_path):
    def stop():
        return "cancelled" if any(event.kind == "evaluation" for event in events) else None

    run = train(make_job("hang_in_group", run_limit_seconds=90.0), stop)
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
