"""Cache a slow query; refresh it in a thread, with a time limit."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class BackgroundValue(Generic[T]):
    """The latest answer of a query, asked at most once every `keep_seconds`, in a thread.

    The thread is none of those that serve requests, so it is free when all of them hang. While one
    hangs no second is started, and readers wait no longer than `limit_seconds` from its start.
    """

    def __init__(self, ask: Callable[[], T], *, keep_seconds: float, limit_seconds: float) -> None:
        self._ask = ask
        self._keep_seconds = keep_seconds
        self._limit_seconds = limit_seconds
        self._asked_at = 0.0
        self._answer: Future[T] | None = None

    async def get(self) -> T:
        """Return the value. Raises the query's error, or TimeoutError if it takes too long."""
        answer, now = self._answer, time.monotonic()
        if answer is None or (answer.done() and now - self._asked_at >= self._keep_seconds):
            answer = self._answer = Future()
            self._asked_at = now
            # A daemon: a question that hangs does not keep the process from ending.
            threading.Thread(target=self._run, args=(answer,), daemon=True).start()
        answered = asyncio.wrap_future(answer)
        answered.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([answered], timeout=max(self._asked_at + self._limit_seconds - now, 0))
        if not answer.done():
            raise TimeoutError
        return answer.result()

    def _run(self, answer: Future[T]) -> None:
        try:
            answer.set_result(self._ask())
        except Exception as error:  # noqa: BLE001  Raised again where the answer is awaited.
            answer.set_exception(error)
