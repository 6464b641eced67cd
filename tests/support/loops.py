"""Event loops of their own for tests: the thread of the tests may run one for the browser."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import wraps


def run_async(coroutine):
    """What a coroutine returns, run to its end in a thread with a loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def in_loop(test):
    @wraps(test)
    def run(*given, **named):
        return run_async(test(*given, **named))

    return run
