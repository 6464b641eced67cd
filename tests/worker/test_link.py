"""Messages of a worker to its server, its log lines and its end."""

import json
import logging
import signal
import threading
import time
from dataclasses import asdict
from typing import get_args

import httpx2
import pytest

from finishline.client.transport import FinishlineError
from finishline.rules.verification.messages import (
    BatchAnswer,
    EvaluationBatch,
    FailureCode,
    Lease,
    ReplayEvent,
    ReplayReport,
)
from worker.failures import death_of_child, failure
from worker.link import HelloThread, WorkerLink
from worker.outbox import Outbox
from worker.settings import FORMATTERS, attempt_in_logs
from worker.state import WorkerState, guard_stop

GRANT = Lease("attempt-1", fence=1, token="attempt-token", lease_seconds=0.5, job=None)


@pytest.fixture
def talk():
    """A client whose server answers with the given responses, the last one for ever."""
    clients = []

    def talk(*answers, waits=None):
        remaining = list(answers)
        requests = []

        def answer(request):
            requests.append(request)
            chosen = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            if isinstance(chosen, Exception):
                raise chosen
            return chosen

        pause = (waits if waits is not None else []).append
        how = {"transport": httpx2.MockTransport(answer), "pause": pause}
        client = WorkerLink("http://server", token="worker-token", **how)
        clients.append(client)
        return client, requests

    yield talk
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def lease(make_job):
    return Lease("attempt-1", fence=3, token="secret", lease_seconds=8.0, job=make_job())


@pytest.mark.parametrize(
    "trouble",
    [httpx2.ConnectError("refused"), httpx2.ReadTimeout("slow"), httpx2.Response(503),
     httpx2.Response(429)],
    ids=["refused", "timeout", "503", "429"],
)  # fmt: skip
def test_a_server_in_trouble_is_asked_again_with_growing_waits(talk, trouble, lease):
    waits, granted = [], httpx2.Response(200, json=asdict(lease))
    client, requests = talk(trouble, trouble, trouble, granted, waits=waits)
    assert client.claim("attempt-1", "grace") == lease
    assert len(requests) == 4
    assert waits == sorted(waits)
    assert waits[-1] > waits[0] > 0


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_for_a_pause_gets_it_as_long_as_a_try_is_left(talk, lease, status):
    waits, granted = [], httpx2.Response(200, json=asdict(lease))
    busy = httpx2.Response(status, headers={"Retry-After": "3"})
    far = httpx2.Response(status, headers={"Retry-After": "3600"})
    client, requests = talk(busy, far, granted, waits=waits)
    client.claim("attempt-1", "grace")
    assert len(requests) == 3
    assert waits[0] == 3
    assert 14 < waits[1] <= 15  # Half of the 30 s that a claim is tried for.


@pytest.mark.parametrize("status", [401, 404, 409, 422])
def test_a_refusal_is_not_asked_again_and_carries_the_servers_sentence(talk, status):
    client, requests = talk(httpx2.Response(status, json={"detail": "no such attempt"}))
    with pytest.raises(FinishlineError, match="no such attempt"):
        client.claim("attempt-1", "grace")
    assert len(requests) == 1


def test_events_are_given_up_when_the_lease_is_over(talk, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    class Waits(list):
        def append(self, seconds):
            now[0] += seconds
            super().append(seconds)

    waits = Waits()
    client, _ = talk(httpx2.ConnectError("refused"), waits=waits)
    with pytest.raises(FinishlineError):
        client.post_events(GRANT, EvaluationBatch())
    assert 0 < sum(waits) <= GRANT.lease_seconds
    with pytest.raises(FinishlineError):
        client.report(GRANT, ReplayReport(runs=[], system=None))
    assert sum(waits) > 5 * GRANT.lease_seconds  # a report is worth waiting longer for


def test_worker_says_hello_at_once_repeatedly_and_when_it_stops(fake_server, server_client, system):
    state = WorkerState()
    with HelloThread(server_client, system, state, every_seconds=0.01):
        fake_server.wait_for(lambda: len(fake_server.bodies("hello")) >= 3)
        state.busy = True
        fake_server.wait_for(lambda: fake_server.bodies("hello")[-1]["state"] == "busy")
    hellos = fake_server.bodies("hello")
    assert hellos[0]["state"] == "idle"
    assert hellos[-1]["state"] == "stopping"
    assert hellos[0]["system"]["worker"] == "grace"
    assert fake_server.tokens("hello") == {"Bearer worker-token"}


@pytest.fixture
def say(talk, system, caplog):
    caplog.set_level("INFO", logger="worker.link")

    def say(*answers):
        client, _ = talk(*answers)
        state = WorkerState()
        hello = HelloThread(client, system, state)
        for _ in answers:
            hello._say()
        return state.refused

    return say


def test_a_server_that_is_away_is_logged_once_and_again_when_it_is_back(say, caplog):
    away = httpx2.ConnectError("refused")
    well = httpx2.Response(200, json={})
    say(away, away, well, well)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_hello_brings_an_organisers_order_and_takes_it_back(say, caplog):
    pause = {"order": "pause", "why": "paused by olivia: new fans"}
    work = {"order": "work", "why": None}
    say(*(httpx2.Response(200, json=order) for order in (pause, pause, work, work)))
    told = ["asked to pause: paused by olivia: new fans", "asked to work"]
    assert caplog.messages == told


def test_an_unconfirmed_worker_says_once_that_it_waits_for_an_organiser(say, system, caplog):
    told = [{"unconfirmed": True}, {"unconfirmed": True}, {"unconfirmed": False}, {}]
    say(*(httpx2.Response(200, json=each) for each in told))
    command = f"finishline admin worker set {system.worker} confirm"
    assert [command in each for each in caplog.messages] == [True, False]


@pytest.mark.parametrize("status", [401, 422, 426])
def test_a_refused_hello_ends_the_worker_with_the_servers_sentence(say, caplog, status):
    refused = say(httpx2.Response(status, json={"detail": "This is no worker."}))
    assert refused.startswith("This is no worker. This worker ends")
    assert refused in caplog.text


def test_a_worker_that_has_become_free_says_so_at_once(fake_server, server_client, system):
    with HelloThread(server_client, system, WorkerState(), every_seconds=600.0) as hello:
        fake_server.wait_for(lambda: len(fake_server.bodies("hello")) == 1)
        hello.say_soon()
        fake_server.wait_for(lambda: len(fake_server.bodies("hello")) == 2)


class Server:
    def __init__(self):
        self.batches = []
        self.changed = threading.Condition()

    def post(self, batch):
        with self.changed:
            self.batches.append([event.sequence for event in batch.events])
            self.changed.notify_all()
        return BatchAnswer(proceed=True)

    def wait_for(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, timeout=20)


def event(sequence):
    return ReplayEvent(sequence=sequence, run=0, kind="phase")


def test_events_arrive_in_order_and_all_of_them_before_the_outbox_closes():
    server = Server()
    with Outbox(server.post, heartbeat_seconds=60) as outbox:
        for sequence in range(1200):
            outbox.put(event(sequence))
    assert [number for batch in server.batches for number in batch] == list(range(1200))
    assert len(server.batches) < 20


@pytest.mark.parametrize(
    "urgent",
    [
        [ReplayEvent(sequence=0, run=0, kind="run_started")],
        [ReplayEvent(sequence=0, run=0, kind="evaluation")],
        [
            ReplayEvent(sequence=0, run=0, kind="phase", phase="warmup"),
            ReplayEvent(sequence=1, run=0, kind="phase", phase="data"),
        ],
    ],
    ids=["start of a run", "evaluation", "start of its clock"],
)
def test_what_the_server_times_is_posted_at_once(urgent, monkeypatch):
    monkeypatch.setattr("worker.outbox.GATHER_SECONDS", 60)
    server = Server()
    with Outbox(server.post, heartbeat_seconds=60) as outbox:
        for item in urgent:
            outbox.put(item)
        server.wait_for(lambda: sum(map(len, server.batches)) == len(urgent))


def test_other_events_wait_for_one_that_is_posted_at_once(monkeypatch):
    """Events of one post leave no heartbeat behind."""
    monkeypatch.setattr("worker.outbox.GATHER_SECONDS", 60)
    server = Server()
    with Outbox(server.post, heartbeat_seconds=60) as outbox:
        for number in (0, 2):
            outbox.put(event(number))
            outbox.put(ReplayEvent(sequence=number + 1, run=0, kind="evaluation"))
            server.wait_for(lambda sent=number + 2: sum(map(len, server.batches)) == sent)
    assert server.batches == [[0, 1], [2, 3]]


def test_what_the_server_times_does_not_wait_for_the_answer_to_the_post_before():
    posted, hurried, answer = Server(), Server(), threading.Event()

    def answered_late(server):
        def post(batch):
            answered = server.post(batch)
            assert answer.wait(timeout=20)
            return answered

        return post

    with Outbox(
        answered_late(posted), heartbeat_seconds=60, hurry=answered_late(hurried)
    ) as outbox:
        outbox.put(ReplayEvent(sequence=0, run=0, kind="run_started"))
        posted.wait_for(lambda: posted.batches == [[0]])
        outbox.put(ReplayEvent(sequence=1, run=0, kind="phase", phase="train"))
        hurried.wait_for(lambda: hurried.batches == [[0, 1]])
        outbox.put(ReplayEvent(sequence=2, run=0, kind="evaluation"))
        hurried.wait_for(lambda: hurried.batches[1:] == [[0, 1, 2]])
        answer.set()
    assert posted.batches == [[0], [1, 2]]


def test_a_slow_server_does_not_hold_up_what_puts_events():
    release = threading.Event()

    def post(batch):
        assert release.wait(timeout=20)
        return BatchAnswer(proceed=True)

    with Outbox(post, heartbeat_seconds=0.01) as outbox:
        for sequence in range(100):
            outbox.put(event(sequence))  # Would hang here if it waited for the post.
        release.set()


@pytest.mark.parametrize("code", get_args(FailureCode))
def test_every_failure_code_has_a_kind_and_a_next_step(code):
    made = failure(code, "what happened")
    assert made.kind in ("submitter", "rules", "infrastructure", "time_limit")
    assert made.next_step.endswith(".")


@pytest.mark.parametrize(
    ("number", "oom_kills", "code"),
    [
        (signal.SIGKILL, 1, "out_of_memory"),
        (signal.SIGKILL, 0, "child_died"),
        (signal.SIGSEGV, 1, "child_died"),
    ],
)
def test_a_kill_while_the_kernel_ran_out_of_memory_is_out_of_memory(number, oom_kills, code):
    found = death_of_child(-number, oom_kills=oom_kills, batch_size=64.0)
    assert found.code == code
    assert ("at a batch size of 64" in found.message) == (code == "out_of_memory")


def line(formatter, message="two\nlines"):
    record = logging.LogRecord("worker.outbox", logging.INFO, __file__, 1, message, (), None)
    return formatter.format(record)


def test_lines_name_the_attempt_until_it_is_over(make_job):
    job = make_job()
    with attempt_in_logs(job):
        inside, text = json.loads(line(FORMATTERS["json"]())), line(FORMATTERS["text"]())
    outside = json.loads(line(FORMATTERS["json"]()))

    ids = [inside["attempt_id"], inside["verification_id"]]
    assert ids == [job.attempt_id, job.verification_id]
    assert (inside["level"], inside["message"]) == ("info", "two\nlines")
    assert set(outside) == {"time", "level", "logger", "message"}
    ids = text.partition("INFO worker.outbox two\\nlines [")[2].rstrip("]").split()
    assert f"attempt_id={job.attempt_id}" in ids
    assert line(FORMATTERS["text"]()).endswith("two\\nlines")


@pytest.mark.parametrize("limit_seconds", [0.0, 0.05])
def test_a_worker_that_was_told_to_stop_and_does_not_is_ended(capfd, limit_seconds):
    state, codes = WorkerState(), []
    thread = guard_stop(state, limit_seconds=limit_seconds, leave=codes.append)
    thread.join(timeout=1.2)
    assert (thread.is_alive(), codes) == (True, [])  # Nobody has told it.
    state.stopping = True
    thread.join(timeout=60)
    assert codes == [0]
    assert "_watch" in capfd.readouterr().err  # The log shows where the threads were.


def test_an_attempt_is_stopped_when_its_grace_is_over():
    state = WorkerState(busy=True, leave_by=time.monotonic() - 1.0)
    assert state.word() == "draining"
    thread = guard_stop(state, limit_seconds=0.0, leave=lambda code: None)
    thread.join(timeout=60)
    assert state.word() == "stopping"
