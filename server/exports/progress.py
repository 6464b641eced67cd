"""What long work says of itself: a line now and then, to whoever waits at a terminal."""

import time
from collections.abc import Callable

Progress = Callable[[str], None]
SECONDS_BETWEEN = 5.0


def silent(_line: str) -> None:
    """Say nothing."""


def now_and_then(say: Progress, *, what: str, seconds: float = SECONDS_BETWEEN) -> Progress:
    """Say a line at most every so many seconds, the first not before then."""
    last = time.monotonic()

    def maybe(line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            say(f"{what}: {line}")

    return maybe
