import threading

import pytest

from finishline.rules.verification.messages import BatchAnswer, ReplayEvent
from worker.link import FencedOffError, UnreachableError
from worker.outbox import Outbox


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
        (FencedOffError(409, "another worker has it"), "fenced"),
        (UnreachableError("the lease is over"), "fenced"),
    ],
)
def test_the_servers_answer_becomes_the_reason_to_stop(answer, reason):
    server = Server(answer)
    with Outbox(server.post, heartbeat_seconds=60) as outbox:
        outbox.put(event(0))
    assert outbox.stop_reason == reason


def test_nothing_more_is_posted_after_being_fenced_off():
    server = Server(FencedOffError(409, "another worker has it"))
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
