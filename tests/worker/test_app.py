"""The Celery application, a real worker on a real broker, and messages that it leaves."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis
from celery import Celery
from celery.worker.consumer import Consumer

from finishline.rules.verification.messages import REPLAY_TASK, queue_of
from server.base.broker import acl_rules, broker_url_of
from tests.support.processes import running_broker
from worker.__main__ import parse_arguments
from worker.app import Intake, make_app
from worker.state import Limits, WorkerState

WORKER_WITH_FAKES = Path(__file__).with_name("worker_with_fakes.py")


@pytest.mark.parametrize("raised", [None, OSError("no process can be started")])
def test_a_message_becomes_an_attempt_while_the_worker_is_busy(make_job, raised):
    attempts, state, job = [], WorkerState(), make_job()

    def make_attempt(job):
        attempts.append((job, state.word()))
        if raised is not None:
            raise raised

    app = make_app("memory://", name="grace", make_attempt=make_attempt, state=state)
    with pytest.raises(OSError, match="no process") if raised else nullcontext():
        app.tasks[REPLAY_TASK](json.loads(json.dumps(asdict(job))))
    assert attempts == [(job, "busy")]
    assert state.word() == "idle"


def test_a_broker_that_refuses_or_vanishes_does_not_end_a_worker():
    app = make_app("memory://", name="grace", make_attempt=print, state=WorkerState())
    assert app.conf.worker_prefetch_multiplier == 1
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
def send(broker_url):
    app = Celery("sender", broker=broker_url, set_as_current=False)

    def send(job):
        queue = queue_of("grace")
        app.send_task(REPLAY_TASK, args=[asdict(job)], queue=queue, ignore_result=True)

    yield send
    app.close()


def _sent(payload, **changed):
    """A message as Celery sends it, with some of its parts changed."""
    body = base64.b64encode(json.dumps([[payload], {}, {}]).encode()).decode()
    properties = {"body_encoding": "base64", "delivery_tag": "t", "correlation_id": "1",
                  "delivery_info": {"exchange": "", "routing_key": "x"}}  # fmt: skip
    message = {"body": body, "content-type": "application/json", "content-encoding": "utf-8",
               "headers": {"task": REPLAY_TASK, "id": "1"}, "properties": properties}  # fmt: skip
    return json.dumps(message | changed).encode()


def garbage(job):
    """What somebody may put into a queue."""
    job = asdict(job)
    header = {"task": REPLAY_TASK, "id": "1"}
    return [
        b"garbage",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        _sent(job, headers=None),
        _sent(job, headers={"task": "other", "id": "1"}),
        _sent(job, headers=header | {"id": [1]}),
        _sent(job, headers=header | {"expires": "soon"}),
        _sent(job, body="not base64"),
        _sent(job, body=base64.b64encode(b"[1, 2]").decode()),
        _sent(job | {"trainings": "all"}),
        _sent(job | {"run_limit_seconds": float("nan")}),
        _sent(job | {"run_limit_seconds": float("inf")}),
        _sent(job | {"trainings": [{"seed": 1}]}),
    ]


@pytest.mark.nightly
def test_garbage_is_dropped_and_logged_and_the_worker_lives(
    start_worker, send, fake_server, make_job, broker_url, tmp_path
):
    worker = start_worker()
    lines = garbage(make_job("climb"))
    with redis.Redis(unix_socket_path=broker_url.removeprefix("redis+socket://")) as broker:
        for line in lines:
            broker.lpush(queue_of("grace"), line)
        # Parts that only Celery would have read are left out, not believed.
        broker.lpush(queue_of("grace"), _sent(asdict(make_job("climb")), properties={"x": 1}))
    send(make_job("climb"))
    fake_server.wait_for(lambda: len(fake_server.bodies("report")) == 2, seconds=60)
    assert worker.poll() is None
    log = (tmp_path / "worker-0.log").read_text()
    assert log.count("a message that is no replay job was dropped") == len(lines)


@pytest.mark.nightly
def test_an_account_of_its_own_is_all_that_a_worker_needs(
    start_worker, send, fake_server, make_job, broker_url
):
    with redis.Redis(unix_socket_path=broker_url.removeprefix("redis+socket://")) as broker:
        broker.execute_command("ACL", "SETUSER", queue_of("grace"), *acl_rules("grace", "p/w"))
        worker = start_worker(measure="all", url=broker_url_of(broker_url, "grace", "p/w"))
        send(make_job("climb"))
        broker.lpush(queue_of("grace"), b"garbage")
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
def work(fake_server, make_job, monkeypatch):
    """Offers jobs at the server itself; a worker that pulls them is told of no broker."""
    monkeypatch.setenv("FINISHLINE_BROKER_URL", "")
    nothing = (204, {})

    def offer(*trainers):
        jobs = [(200, asdict(make_job(trainer, run_limit_seconds=600))) for trainer in trainers]
        fake_server.answers["next"] = [*jobs, nothing]

    return offer


@pytest.mark.nightly
def test_a_worker_that_pulls_makes_its_attempts_and_ends_once_it_is_idle(
    start_worker, work, fake_server
):
    work("climb", "climb")
    worker = start_worker("--pull", "--exit-when-idle", "3", url="")
    assert worker.wait(timeout=60) == 0
    assert [body["runs"][0]["status"] for body in fake_server.bodies("report")] == ["reached"] * 2
    assert fake_server.tokens("next") == {"Bearer worker-token"}
    assert fake_server.bodies("hello")[-1]["state"] == "stopping"


@pytest.mark.nightly
@pytest.mark.parametrize("pulls", [True, False])
def test_a_worker_ends_after_as_many_attempts_as_it_may_make(
    pulls, start_worker, work, send, fake_server, make_job
):
    if pulls:
        work("climb", "climb")
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
def test_sigterm_ends_a_worker_that_pulls_as_any_other(start_worker, work, fake_server):
    work("hang")
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


@pytest.mark.parametrize("options", [["--max-attempts", "0"], ["--exit-when-idle", "soon"]])
def test_a_limit_that_is_none_stops_the_start(options, capsys):
    with pytest.raises(SystemExit, match="2"):
        parse_arguments(options)
    assert options[0] in capsys.readouterr().err


@pytest.mark.nightly
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


QUEUE = "replay.grace"


class LoopConsumer:
    """Celery's consumer without its loop: what it does about queues is Celery's own."""

    add_task_queue = Consumer.add_task_queue
    cancel_task_queue = Consumer.cancel_task_queue

    def __init__(self, app, connection):
        self.app, self.connection = app, connection
        self.taken = []
        app.amqp.queues.select([QUEUE])
        self.task_consumer = app.amqp.TaskConsumer(
            connection.default_channel, callbacks=[self._take]
        )
        self.task_consumer.consume()
        self.asked = threading.Event()

    def call_soon(self, ask, *arguments):
        self.asking = lambda: ask(*arguments)
        self.asked.set()

    def follow(self):
        """Do what it is asked for next."""
        self.asked.clear()
        assert self.asked.wait(10)
        self.asking()

    def _take(self, body, message):
        self.taken.append(body)
        message.ack()

    def send(self):
        self.app.send_task(REPLAY_TASK, args=[{}], queue=QUEUE, ignore_result=True)

    def drain(self):
        """How many messages it has taken so far."""
        with suppress(TimeoutError):
            while True:
                self.connection.drain_events(timeout=0.1)
        return len(self.taken)


@pytest.fixture
def consumer():
    app = Celery("taker", broker="memory://", set_as_current=False)
    with app.connection_for_read() as connection:
        yield LoopConsumer(app, connection)
    app.close()


def test_a_worker_that_is_out_takes_nothing_and_takes_it_all_once_it_is_in(consumer):
    state = WorkerState(out=True)
    with Intake(SimpleNamespace(consumer=consumer), QUEUE, state):
        consumer.follow()
        consumer.send()
        assert consumer.drain() == 0
        state.out = False
        consumer.follow()
        assert consumer.drain() == 1
        consumer.send()
        assert consumer.drain() == 2


def test_without_a_connection_it_asks_again_later(consumer):
    consumer.task_consumer = None
    with Intake(SimpleNamespace(consumer=consumer), QUEUE, WorkerState(out=True)):
        consumer.follow()
        consumer.follow()


def test_worker_at_its_limit_ends(consumer):
    state = WorkerState(paused=True)
    ended = threading.Event()
    with Intake(SimpleNamespace(consumer=consumer), QUEUE, state, end=ended.set):
        consumer.follow()
        assert not ended.is_set()  # A pause alone ends nothing.
        state.paused, state.limits = False, Limits(attempts=0)
        consumer.follow()
    assert ended.is_set()
    assert not consumer.task_consumer.consuming_from(QUEUE)


def test_a_connection_whose_message_cannot_be_acknowledged_is_given_up(consumer):
    """As where the broker is away at the moment an attempt ends: nothing else would ever come."""
    consumer.task_consumer.qos(prefetch_count=1)
    held = []
    consumer.task_consumer.callbacks = [lambda _body, message: held.append(message)]
    state = WorkerState(busy=True)
    with Intake(SimpleNamespace(consumer=consumer), QUEUE, state):
        consumer.send()
        consumer.connection.drain_events(timeout=1)
        assert not consumer.asked.wait(1.2)  # The attempt is under way: its message may wait.
        state.busy = False
        with pytest.raises(ConnectionError, match="acknowledged"):
            consumer.follow()
        held[0].ack()
        consumer.asking()  # Acknowledged after all, so the connection is kept.
