"""Real workers that get the ids of their attempts from a real broker, or by polls."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from finishline.rules.verification.messages import queue_of
from server.base.broker import Broker, acl_rules, broker_url_of
from tests.support.processes import running_broker
from worker.intake import make_app

WORKER_WITH_FAKES = Path(__file__).with_name("worker_with_fakes.py")


def test_a_broker_that_refuses_or_vanishes_does_not_end_a_worker():
    app = make_app("memory://", name="grace", make_attempt=print)
    # Redis that is full, or only reads, refuses commands: an error of the channel.
    assert app.conf.broker_channel_error_retry is True
    with app.connection_for_read() as connection:
        assert 1 < connection.transport_options["socket_timeout"] < 60


@pytest.fixture
def broker_url():
    with running_broker() as path:
        yield f"redis+socket://{path}"


@pytest.fixture
def start_worker(broker_url, fake_server, tmp_path):
    """Starts real workers with the fake trainers; kills those a test leaves behind.

    To measure themselves takes them five times as long as what they are tested for.
    """
    workers = []

    def start(*options, measure="off", url=None):
        environment = os.environ | {
            "FINISHLINE_MEASURE": measure,
            "FINISHLINE_ENTRIES": "off",
            "TEST_HELLO_SECONDS": "0.5",
            "FINISHLINE_BROKER_URL": broker_url if url is None else url,
            "FINISHLINE_SERVER_URL": fake_server.url,
            "FINISHLINE_WORKER_TOKEN": "worker-token",
            "FINISHLINE_WORKER_NAME": "grace",
            "FINISHLINE_HARDWARE_CLASS": "cpu-test",
        }
        log = (tmp_path / f"worker-{len(workers)}.log").open("wb")
        worker = subprocess.Popen(
            [sys.executable, str(WORKER_WITH_FAKES), *options],
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
def send(broker_url, fake_server):
    broker = Broker(broker_url)

    def send(job):
        fake_server.job = job
        broker.send_attempt(job.attempt_id, "grace")

    yield send
    broker.close()


@pytest.mark.nightly
def test_worker_hears_again_after_a_drop(start_worker, send, fake_server, make_job, broker_url):
    """No connection is left to acknowledge the message of the attempt that ends meanwhile."""
    start_worker()
    send(make_job("stroll"))
    fake_server.wait_for(lambda: fake_server.events(), seconds=60)
    with redis.Redis(unix_socket_path=broker_url.removeprefix("redis+socket://")) as broker:
        assert broker.execute_command("CLIENT", "KILL", "TYPE", "normal") > 0
    fake_server.wait_for(lambda: len(fake_server.bodies("report")) == 1, seconds=60)
    send(make_job("climb"))
    fake_server.wait_for(lambda: len(fake_server.bodies("report")) == 2, seconds=60)


@pytest.mark.nightly
def test_garbage_in_a_queue_ends_no_worker(start_worker, send, fake_server, make_job, broker_url):
    with redis.Redis(unix_socket_path=broker_url.removeprefix("redis+socket://")) as broker:
        start_worker()
        for entry in ("no JSON", b"\xff", "[1]", "{}", "7"):
            broker.rpush(queue_of("grace"), entry)
            fake_server.wait_for(lambda: not broker.llen(queue_of("grace")), seconds=60)
    send(make_job("climb"))
    fake_server.wait_for(lambda: len(fake_server.bodies("report")) == 1, seconds=60)


@pytest.mark.nightly
def test_a_worker_needs_its_own_account(start_worker, send, fake_server, make_job, broker_url):
    with redis.Redis(unix_socket_path=broker_url.removeprefix("redis+socket://")) as broker:
        broker.execute_command("ACL", "SETUSER", queue_of("grace"), *acl_rules("grace", "p/w"))
        worker = start_worker(measure="all", url=broker_url_of(broker_url, "grace", "p/w"))
        send(make_job("climb"))
        send(make_job("climb"))
        fake_server.wait_for(lambda: len(fake_server.bodies("report")) == 2, seconds=60)
        assert {body["runs"][0]["status"] for body in fake_server.bodies("report")} == {"reached"}
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=60) == 0
        assert fake_server.bodies("hello")[-1]["state"] == "stopping"
        assert broker.acl_log() == []


@pytest.mark.nightly
@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_token_ends_the_worker_with_a_sentence(start_worker, fake_server, tmp_path, status):
    fake_server.answers["hello"] = [(status, {"detail": "This token is not known"})]
    assert start_worker().wait(timeout=60) == 3
    log = (tmp_path / "worker-0.log").read_text()
    assert "This token is not known" in log
    assert "Traceback" not in log

    fake_server.answers["hello"] = [(200, {}), (200, {}), (status, {"detail": "It was revoked"})]
    assert start_worker().wait(timeout=60) == 3
    assert "It was revoked" in (tmp_path / "worker-1.log").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("trainer", "grace", "code", "status"),
    [("hang", "0", "worker_stopped", "failed"), ("stroll", "60", None, "reached")],
)
def test_sigterm_ends_the_training_after_its_grace_and_reports_it(
    start_worker, send, fake_server, make_job, monkeypatch, trainer, grace, code, status
):
    monkeypatch.setenv("FINISHLINE_STOP_GRACE_SECONDS", grace)
    worker = start_worker()
    send(make_job(trainer, run_limit_seconds=600))
    fake_server.wait_for(
        lambda: any(event["kind"] == "evaluation" for event in fake_server.events()), seconds=60
    )
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0
    [report] = fake_server.bodies("report")
    assert (report["failure"] and report["failure"]["code"]) == code
    assert report["runs"][0]["status"] == status


@pytest.fixture
def offer(fake_server, make_job, monkeypatch):
    monkeypatch.setenv("FINISHLINE_BROKER_URL", "")

    def offer(trainer, times=1):
        fake_server.job = make_job(trainer, run_limit_seconds=600)
        fake_server.answers["next"] = [(200, {"attempt_id": "attempt-1"})] * times + [(204, {})]

    return offer


@pytest.mark.nightly
def test_a_worker_that_pulls_ends_once_it_is_idle(start_worker, offer, fake_server):
    offer("climb", 2)
    worker = start_worker("--pull", "--exit-when-idle", "3", url="")
    assert worker.wait(timeout=60) == 0
    assert [body["runs"][0]["status"] for body in fake_server.bodies("report")] == ["reached"] * 2
    assert fake_server.tokens("next") == {"Bearer worker-token"}
    assert fake_server.bodies("hello")[-1]["state"] == "stopping"


@pytest.mark.nightly
@pytest.mark.parametrize("pulls", [True, False])
def test_a_worker_ends_after_its_attempts(pulls, start_worker, offer, send, fake_server, make_job):
    if pulls:
        offer("climb", 2)
    else:
        send(make_job("climb"))
        send(make_job("climb"))
    options = ["--pull"] if pulls else []
    assert start_worker(*options, "--max-attempts", "1").wait(timeout=60) == 0
    assert len(fake_server.bodies("report")) == 1
    # An attempt that another worker has is none of its own.
    fake_server.answers["claim"] = [(409, {"detail": "it is taken"})]
    if not pulls:
        assert start_worker("--exit-when-idle", "1").wait(timeout=60) == 0
    assert len(fake_server.bodies("report")) == 1


@pytest.mark.nightly
def test_sigterm_ends_a_worker_that_pulls_as_any_other(start_worker, offer, fake_server):
    offer("hang")
    worker = start_worker("--pull")
    fake_server.wait_for(lambda: fake_server.events(), seconds=60)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0
    [report] = fake_server.bodies("report")
    assert report["failure"]["code"] == "worker_stopped"

    asked = len(fake_server.bodies("next"))
    idle = start_worker("--pull")
    fake_server.wait_for(lambda: len(fake_server.bodies("next")) > asked, seconds=60)
    idle.send_signal(signal.SIGTERM)
    assert idle.wait(timeout=60) == 0


@pytest.mark.nightly
def test_a_message_is_gone_with_its_worker(start_worker, send, fake_server, make_job):
    worker = start_worker()
    send(make_job("hang", run_limit_seconds=600))
    fake_server.wait_for(lambda: fake_server.events(), seconds=60)
    worker.kill()
    worker.wait()
    start_worker()
    send(make_job("climb"))
    fake_server.wait_for(lambda: fake_server.bodies("report"), seconds=60)
    assert len(fake_server.bodies("claim")) == 2  # The killed one did not come back.
