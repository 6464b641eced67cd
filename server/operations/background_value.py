"""Cache a slow query; refresh it in a thread, with a time limit."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Raised:
    """An exception as a value: a future complains if its exception is never read."""

    error: Exception


class BackgroundValue(Generic[T]):
    """The latest answer of a query, asked at most once every `keep_seconds`, in a thread.

    The thread is none of those that serve requests, so it is free when all of them hang. While one
    hangs no second is started, and readers wait no longer than `limit_seconds` from its start.
    """

    def __init__(
        self, ask: Callable[[], T], *, name: str, keep_seconds: float, limit_seconds: float
    ) -> None:
        self._ask = ask
        self._name = name
        self._keep_seconds = keep_seconds
        self._limit_seconds = limit_seconds
        self._lock = threading.Lock()
        self._asked_at = 0.0
        self._answer: Future[T | Raised] | None = None

    async def get(self) -> T:
        """Return the value. Raises the query's error, or TimeoutError if it takes too long."""
        answer, asked_at = self._latest()
        if answer.done():
            found = answer.result()
        else:
            left = asked_at + self._limit_seconds - time.monotonic()
            waiting = asyncio.shield(asyncio.wrap_future(answer))
            found = await asyncio.wait_for(waiting, max(left, 0.0))
        if isinstance(found, Raised):
            raise found.error
        return found

    def _latest(self) -> tuple[Future[T | Raised], float]:
        with self._lock:
            answer, now = self._answer, time.monotonic()
            if answer is None or (answer.done() and now - self._asked_at >= self._keep_seconds):
                answer = self._answer = Future()
                self._asked_at = now
                # A daemon: a question that hangs does not keep the process from ending.
                threading.Thread(
                    target=self._run, args=(answer,), name=self._name, daemon=True
                ).start()
            return answer, self._asked_at

    def _run(self, answer: "Future[T | Raised]") -> None:
        try:
            answer.set_result(self._ask())
        except Exception as error:  # noqa: BLE001  Raised again where the answer is awaited.
            answer.set_result(Raised(error))
