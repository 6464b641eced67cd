"""A few threads that work on what they are handed; none of them keeps a command from ending."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Task = TypeVar("Task")
Done = TypeVar("Done")


class Crew(Generic[Task, Done]):
    """Works on at most `size` tasks at a time; on no other once `ends` says so.

    A ThreadPoolExecutor would wait at the end of the process for a request that is not answered.
    """

    def __init__(
        self, size: int, work: Callable[[Task], Done], *, ends: Callable[[], bool]
    ) -> None:
        self._work = work
        self._ends = ends
        self._waiting: queue.SimpleQueue[tuple[Task, Future[Done]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(size)]
        for thread in self._threads:
            thread.start()

    def hand(self, task: Task) -> "Future[Done]":
        """Work on a task as soon as somebody is free; what is not begun is cancelled."""
        future: Future[Done] = Future()
        self._waiting.put((task, future))
        return future

    def dismiss(self) -> None:
        """Let everybody go once the tasks at hand are done, without waiting for it."""
        for _ in self._threads:
            self._waiting.put(None)

    def _run(self) -> None:
        while (handed := self._waiting.get()) is not None:
            task, future = handed
            if self._ends():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._work(task))
            except BaseException as error:  # noqa: BLE001 - whoever asked for it decides
                future.set_exception(error)
