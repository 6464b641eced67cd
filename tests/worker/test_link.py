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

from finishline.client.transport import Conflict, FinishlineError
from finishline.rules.verification.messages import (
    REPLAY_TASK,
    BatchAnswer,
    ClaimRequest,
    EvaluationBatch,
    FailureCode,
    Lease,
    ReplayEvent,
    ReplayReport,
)
from worker.app import make_app
from worker.failures import death_of_child, ends_attempt, failure
from worker.link import HelloThread, WorkerLink
from worker.logs import FORMATTERS, attempt_in_logs
from worker.outbox import Outbox
from worker.state import WorkerState, guard_stop

GRANT = Lease(attempt_id="attempt-1", fence=1, token="attempt-token", lease_seconds=0.5)


CLAIM = ClaimRequest(worker="grace", hardware_class="cpu-test")


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

        client = WorkerLink(
            "http://server",
            token="worker-token",
            transport=httpx2.MockTransport(answer),
            pause=(waits if waits is not None else []).append,
        )
        clients.append(client)
        return client, requests

    yield talk
    for client in clients:
        client.__exit__(None, None, None)


def granted():
    return httpx2.Response(
        200,
        json={"attempt_id": "attempt-1", "fence": 3, "token": "secret", "lease_seconds": 8},
    )


def test_claim_returns_the_grant_and_authorises_with_the_workers_token(talk):
    client, requests = talk(granted())
    grant = client.claim("attempt-1", CLAIM)
    assert grant == Lease("attempt-1", 3, "secret", 8.0)
    assert requests[0].url == "http://server/api/v1/attempts/attempt-1/claim"
    assert requests[0].headers["authorization"] == "Bearer worker-token"


def test_posts_of_an_attempt_authorise_with_the_token_of_the_claim(talk):
    client, requests = talk(httpx2.Response(200, json={"proceed": True, "reason": None}))
    assert client.post_events(GRANT, EvaluationBatch()) == BatchAnswer(proceed=True)
    assert requests[0].headers["authorization"] == "Bearer attempt-token"
    assert requests[0].content == b'{"events":[]}'


@pytest.mark.parametrize(
    "trouble",
    [httpx2.ConnectError("refused"), httpx2.ReadTimeout("slow"), httpx2.Response(503),
     httpx2.Response(429)],
    ids=["refused", "timeout", "503", "429"],
)  # fmt: skip
def test_a_server_in_trouble_is_asked_again_with_growing_waits(talk, trouble):
    waits = []
    client, requests = talk(trouble, trouble, trouble, granted(), waits=waits)
    client.claim("attempt-1", CLAIM)
    assert len(requests) == 4
    assert waits == sorted(waits)
    assert waits[-1] > waits[0] > 0


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_for_a_pause_gets_it_as_long_as_a_try_is_left(talk, status):
    waits = []
    busy = httpx2.Response(status, headers={"Retry-After": "3"})
    far = httpx2.Response(status, headers={"Retry-After": "3600"})
    client, requests = talk(busy, far, granted(), waits=waits)
    client.claim("attempt-1", CLAIM)
    assert len(requests) == 3
    assert waits[0] == 3
    assert 14 < waits[1] <= 15  # Half of the 30 s that a claim is tried for.


@pytest.mark.parametrize("status", [401, 404, 422])
def test_a_refusal_is_not_asked_again_and_carries_the_servers_sentence(talk, status):
    client, requests = talk(httpx2.Response(status, json={"detail": "no such attempt"}))
    with pytest.raises(FinishlineError, match="no such attempt"):
        client.claim("attempt-1", CLAIM)
    assert len(requests) == 1


def test_a_conflict_means_fenced_off(talk, caplog):
    caplog.set_level("INFO", logger="worker.link")
    client, requests = talk(httpx2.Response(409, json={"detail": "taken"}))
    with pytest.raises(Conflict):
        client.post_events(GRANT, EvaluationBatch())
    assert "answered 409" in caplog.text
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


def test_a_server_that_is_away_is_logged_once_and_again_when_it_is_back(system, caplog):
    caplog.set_level("INFO", logger="worker.link")
    answers = [httpx2.ConnectError("refused"), httpx2.ConnectError("refused"), httpx2.Response(204)]

    def answer(request):
        chosen = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(chosen, Exception):
            raise chosen
        return chosen

    with WorkerLink("http://server", token="t", transport=httpx2.MockTransport(answer)) as client:
        hello = HelloThread(client, system, WorkerState())
        for _ in range(4):
            hello._say()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_hello_brings_an_organisers_order_and_takes_it_back(system, caplog):
    caplog.set_level("INFO", logger="worker.link")
    orders = [
        {"order": "pause", "why": "paused by olivia: new fans"},
        {"order": "work", "why": None},
        None,
    ]

    def answer(request):
        order = orders.pop(0)
        return httpx2.Response(204) if order is None else httpx2.Response(200, json=order)

    state = WorkerState()
    with WorkerLink("http://server", token="t", transport=httpx2.MockTransport(answer)) as client:
        hello = HelloThread(client, system, state)
        held = []
        while orders:
            hello._say()
            held.append((state.paused, state.takes_nothing))
    nothing = (False, False)
    # A server of the version before answers nothing, which is no order.
    assert held == [(True, True), nothing, nothing]
    assert "asked to pause: paused by olivia: new fans" in caplog.text
    assert "asked to work" in caplog.text


def test_an_unconfirmed_worker_says_once_that_it_waits_for_an_organiser(system, caplog):
    caplog.set_level("INFO", logger="worker.link")
    told = [{"unconfirmed": True}, {"unconfirmed": True}, {"unconfirmed": False}, {}]
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=told.pop(0)))
    with WorkerLink("http://server", token="t", transport=transport) as client:
        hello = HelloThread(client, system, WorkerState())
        while told:
            hello._say()
    command = f"finishline workers confirm {system.worker}"
    assert [command in each for each in caplog.messages] == [True, False]


def test_a_worker_that_has_become_free_says_so_at_once(fake_server, server_client, system):
    with HelloThread(server_client, system, WorkerState(), every_seconds=600.0) as hello:
        fake_server.wait_for(lambda: len(fake_server.bodies("hello")) == 1)
        hello.say_soon()
        fake_server.wait_for(lambda: len(fake_server.bodies("hello")) == 2)


@pytest.mark.parametrize(
    ("status", "detail", "said"),
    [
        (401, "This token is not known here.", "known here. This worker ends; give it a token"),
        (422, "The worker's name 'a/b' has a slash.", "has a slash. This worker ends."),
    ],
    ids=["token", "name"],
)
def test_a_refused_hello_ends_the_worker_with_sentences(system, caplog, status, detail, said):
    answer = httpx2.Response(status, json={"detail": detail})
    transport = httpx2.MockTransport(lambda _: answer)
    state = WorkerState()
    with WorkerLink("http://server", token="t", transport=transport) as client:
        HelloThread(client, system, state)._say()
    assert said in caplog.text
    assert state.refused in caplog.text


class Server:
    """Keeps the batches it gets; answers what it is told to."""

    def __init__(self, answer=None):
        self.answer = answer or BatchAnswer(proceed=True)
        self.batches = []
        self.changed = threading.Condition()

    def post(self, batch):
        with self.changed:
            self.batches.append([event.sequence for event in batch.events])
            self.changed.notify_all()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

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
    monkeypatch.setattr("worker.outbox.GATHER_SECONDS", 60)
    server = Server()
    with Outbox(server.post, heartbeat_seconds=60) as outbox:
        outbox.put(ReplayEvent(sequence=0, run=0, kind="evaluation"))
        server.wait_for(lambda: server.batches == [[0]])
        outbox.put(ReplayEvent(sequence=1, run=0, kind="phase", phase="train"))
        outbox.put(ReplayEvent(sequence=2, run=0, kind="evaluation"))
        server.wait_for(lambda: server.batches == [[0], [1, 2]])


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


def test_silence_is_filled_with_heartbeats():
    server = Server()
    with Outbox(server.post, heartbeat_seconds=0.01):
        server.wait_for(lambda: len(server.batches) >= 3)
    assert server.batches[:3] == [[], [], []]


def test_a_slow_server_does_not_hold_up_what_puts_events():
    release = threading.Event()

    def post(batch):
        assert release.wait(timeout=20)
        return BatchAnswer(proceed=True)

    with Outbox(post, heartbeat_seconds=0.01) as outbox:
        for sequence in range(100):
            outbox.put(event(sequence))  # Would hang here if it waited for the post.
        release.set()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (BatchAnswer(proceed=True), None),
        (BatchAnswer(proceed=False, reason="cancelled"), "cancelled"),
        (BatchAnswer(proceed=False, reason="time_limit"), "time_limit"),
        (Conflict("another worker has it", status=409), "fenced"),
        (FinishlineError("the lease is over"), "fenced"),
    ],
)
def test_the_servers_answer_becomes_the_reason_to_stop(answer, reason):
    server = Server(answer)
    with Outbox(server.post, heartbeat_seconds=60) as outbox:
        outbox.put(event(0))
    assert outbox.stop_reason == reason


def test_nothing_more_is_posted_after_being_fenced_off():
    server = Server(Conflict("another worker has it", status=409))
    with Outbox(server.post, heartbeat_seconds=0.01) as outbox:
        server.wait_for(lambda: server.batches)
        outbox.put(event(0))
    assert len(server.batches) == 1


def test_events_of_one_post_leave_no_heartbeat_behind(monkeypatch):
    server = Server()
    monkeypatch.setattr("worker.outbox.GATHER_SECONDS", 60)
    with Outbox(server.post, heartbeat_seconds=60) as outbox:
        outbox.put(event(0))
        outbox.put(event(1))
        outbox.put(ReplayEvent(sequence=2, run=0, kind="evaluation"))
        server.wait_for(lambda: server.batches)
    assert server.batches == [[0, 1, 2]]


@pytest.mark.parametrize("code", get_args(FailureCode))
def test_every_failure_code_has_a_kind_and_a_next_step(code):
    made = failure(code, "what happened")
    assert made.kind in ("submitter", "rules", "infrastructure", "time_limit")
    assert made.next_step.endswith(".")


def test_a_kill_while_the_kernel_ran_out_of_memory_is_out_of_memory():
    found = death_of_child(-signal.SIGKILL, oom_kills=1, batch_size=64.0)
    assert (found.code, found.message) == (
        "out_of_memory",
        "the kernel killed the training at a batch size of 64: the host's memory is full",
    )
    assert death_of_child(-signal.SIGKILL, oom_kills=1).code == "out_of_memory"
    assert death_of_child(-signal.SIGKILL, oom_kills=0).code == "child_died"
    assert death_of_child(-signal.SIGSEGV, oom_kills=1).code == "child_died"


def test_a_run_that_is_a_result_does_not_end_its_attempt():
    assert not ends_attempt(failure("training_diverged", ""))
    assert not ends_attempt(failure("run_time_limit", ""))
    assert ends_attempt(failure("child_died", ""))
    assert ends_attempt(failure("bad_hyperparameter", ""))


def line(formatter, message="two\nlines"):
    record = logging.LogRecord("worker.outbox", logging.INFO, __file__, 1, message, (), None)
    return formatter.format(record)


def test_lines_name_the_attempt_until_it_is_over(make_job):
    formatter = FORMATTERS["json"]()
    job = make_job()
    with attempt_in_logs(job):
        inside = json.loads(line(formatter))
    outside = json.loads(line(formatter))

    assert (inside["attempt_id"], inside["verification_id"]) == (
        job.attempt_id,
        job.verification_id,
    )
    assert (inside["level"], inside["message"]) == ("info", "two\nlines")
    assert set(outside) == {"time", "level", "logger", "message"}


def test_text_has_one_line_for_a_message_and_the_ids_behind_it(make_job):
    formatter = FORMATTERS["text"]()
    job = make_job()
    with attempt_in_logs(job):
        text = line(formatter)

    ids = text.partition("INFO worker.outbox two\\nlines [")[2].rstrip("]").split()
    assert f"attempt_id={job.attempt_id}" in ids
    assert line(formatter).endswith("two\\nlines")


def test_a_message_becomes_an_attempt_that_the_lines_name(make_job):
    seen = []
    app = make_app(
        "memory://",
        name="grace",
        make_attempt=lambda _: seen.append(json.loads(line(FORMATTERS["json"]()))),
        state=WorkerState(),
    )
    job = make_job()
    app.tasks[REPLAY_TASK](asdict(job))
    assert [entry["attempt_id"] for entry in seen] == [job.attempt_id]


def test_a_worker_that_does_not_stop_is_ended(capfd):
    state, codes = WorkerState(), []
    thread = guard_stop(state, limit_seconds=0.05, leave=codes.append)
    state.stopping = True
    thread.join(timeout=60)
    assert codes == [0]
    assert "_watch" in capfd.readouterr().err  # The log shows where the threads were.


def test_a_worker_that_was_not_told_to_stop_is_left_alone():
    codes = []
    state = WorkerState()
    thread = guard_stop(state, limit_seconds=0.0, leave=codes.append)
    thread.join(timeout=1.2)
    assert thread.is_alive()
    assert codes == []
    state.stopping = True
    thread.join(timeout=20)
    assert codes == [0]


def test_an_attempt_is_stopped_when_its_grace_is_over():
    state = WorkerState(busy=True, leave_by=time.monotonic() - 1.0)
    assert state.word() == "draining"
    thread = guard_stop(state, limit_seconds=0.0, leave=lambda code: None)
    thread.join(timeout=60)
    assert state.word() == "stopping"
