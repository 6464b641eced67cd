"""A worker that is out leaves messages in their queues, for the worker beside it."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.worker.consumer import Consumer

from finishline.rules.verification.messages import REPLAY_TASK
from worker.intake import Intake, WorkerState

QUEUE = "replay.grace"


class LoopConsumer:
    """Celery's consumer without its loop: what it does about queues is Celery's own."""

    add_task_queue = Consumer.add_task_queue
    cancel_task_queue = Consumer.cancel_task_queue

    def __init__(self, app: Celery, channel: Any) -> None:
        self.app = app
        self.taken: list[Any] = []
        app.amqp.queues.select([QUEUE])
        self.task_consumer = app.amqp.TaskConsumer(channel, callbacks=[self._take])
        self.task_consumer.consume()
        self.asked = threading.Event()

    def call_soon(self, ask: Any, *arguments: Any) -> None:
        self.asking = lambda: ask(*arguments)
        self.asked.set()

    def _take(self, body: Any, message: Any) -> None:
        self.taken.append(body)
        message.ack()


@pytest.fixture
def broker():
    app = Celery("taker", broker="memory://", set_as_current=False)
    with app.connection_for_read() as connection:
        yield app, connection
    app.close()


def test_a_worker_that_is_out_takes_nothing_and_takes_it_all_once_it_is_in(broker: Any) -> None:
    app, connection = broker
    consumer = LoopConsumer(app, connection.default_channel)
    state = WorkerState()
    worker = SimpleNamespace(consumer=consumer)

    def send() -> None:
        for _ in range(2):
            app.send_task(REPLAY_TASK, args=[{}], queue=QUEUE, ignore_result=True)

    def drain() -> int:
        try:
            while True:
                connection.drain_events(timeout=0.1)
        except TimeoutError:
            return len(consumer.taken)

    with Intake(worker, QUEUE, state):
        state.out = True
        assert consumer.asked.wait(10)
        consumer.asking()
        send()
        assert drain() == 0
        consumer.asked.clear()
        state.out = False
        assert consumer.asked.wait(10)
        consumer.asking()
        assert drain() == 2
        send()
        assert drain() == 4


def test_without_a_connection_it_asks_again_later() -> None:
    state = WorkerState(out=True)
    asked: list[Any] = []
    enough = threading.Event()

    def call_soon(ask: Any, *arguments: Any) -> None:
        asked.append(ask)
        ask(*arguments)
        if len(asked) == 2:
            enough.set()

    consumer = SimpleNamespace(task_consumer=None, call_soon=call_soon)
    with Intake(SimpleNamespace(consumer=consumer), QUEUE, state):
        assert enough.wait(10)


def test_a_drained_worker_ends_once_it_takes_nothing(broker: Any) -> None:
    app, connection = broker
    consumer = LoopConsumer(app, connection.default_channel)
    state = WorkerState(paused=True)
    ended = threading.Event()
    worker = SimpleNamespace(consumer=consumer)
    with Intake(worker, QUEUE, state, end=ended.set):
        assert consumer.asked.wait(10)
        consumer.asking()
        assert not ended.is_set()  # A pause alone ends nothing.
        state.paused, state.drained = False, True
        consumer.asked.clear()
        assert consumer.asked.wait(10)
        consumer.asking()
    assert ended.is_set()
    assert not consumer.task_consumer.consuming_from(QUEUE)


def test_a_connection_whose_message_cannot_be_acknowledged_is_given_up(broker: Any) -> None:
    """As where the broker is away at the moment an attempt ends: nothing else would ever come."""
    app, connection = broker
    consumer = LoopConsumer(app, connection.default_channel)
    consumer.task_consumer.qos(prefetch_count=1)
    held: list[Any] = []
    consumer.task_consumer.callbacks = [lambda _body, message: held.append(message)]
    state = WorkerState(busy=True)
    with Intake(SimpleNamespace(consumer=consumer), QUEUE, state):
        app.send_task(REPLAY_TASK, args=[{}], queue=QUEUE, ignore_result=True)
        connection.drain_events(timeout=1)
        assert not consumer.asked.wait(1.2)  # The attempt is under way: its message may wait.
        state.busy = False
        assert consumer.asked.wait(10)
        with pytest.raises(ConnectionError, match="acknowledged"):
            consumer.asking()
        held[0].ack()
        consumer.asking()  # Acknowledged after all, so the connection is kept.
