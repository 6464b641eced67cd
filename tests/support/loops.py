"""Event loops of their own for tests: the thread of the tests may run one for the browser."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def run_async(coroutine: Coroutine[Any, Any, Answer]) -> Answer:
    """What a coroutine returns, run to its end in a thread with a loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
