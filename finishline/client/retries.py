"""Trying again, with pauses that grow."""

import logging
import random
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import TypeVar

from finishline.client.errors import FinishlineError, TooManyRequests, Unavailable

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
TEMPORARY = (502, 503, 504)

FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 2.0
SERVER_FAULTS = range(500, 600)

Answer = TypeVar("Answer")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retries:
    """Number of retries of a repeatable request; the pauses double from half a second.

    With `only_told` it is sent again only where the server says when: it did nothing then.
    """

    count: int = 4
    pause: Callable[[float], None] = time.sleep
    only_told: bool = False

    def attempt(self, request: Callable[[], Answer]) -> Answer:
        """Call `request`, retrying after temporary failures. Raises the last one.

        Gives up if the server asks for a pause of more than a minute.
        """
        for number in range(self.count):
            try:
                return request()
            except FinishlineError as error:
                seconds = _pause_seconds(error, number, only_told=self.only_told)
                if seconds is None:
                    raise
            self.pause(seconds)
        return request()

    def when_told(self) -> "Retries":
        """The same for a request that may not be sent twice, unless the server did nothing."""
        return replace(self, only_told=True)


NEVER = Retries(count=0)


@dataclass(frozen=True)
class TimedRetries:
    """Retries of a request for some seconds, after any fault of the server. Workers use it.

    The pauses double from a tenth of a second to two seconds, each with a line in the log.
    """

    seconds: float
    pause: Callable[[float], None] = time.sleep

    def attempt(self, request: Callable[[], Answer]) -> Answer:
        """Call `request` until it succeeds or time is up. Raises the last failure."""
        give_up_at = time.monotonic() + self.seconds
        wait_seconds = FIRST_WAIT_SECONDS
        while True:
            try:
                return request()
            except FinishlineError as error:
                left_seconds = give_up_at - time.monotonic()
                if not _is_temporary(error, SERVER_FAULTS) or wait_seconds > left_seconds:
                    raise
                # As long as the server asks, but not so long that no try is left.
                asked_seconds = min(error.retry_after_seconds or 0.0, left_seconds / 2)
                pause_seconds = max(wait_seconds, asked_seconds)
                log.warning("%s Trying again in %.1f s.", error.detail, pause_seconds)
            self.pause(pause_seconds)
            wait_seconds = min(2 * wait_seconds, LONGEST_WAIT_SECONDS)


def _pause_seconds(error: FinishlineError, number: int, *, only_told: bool) -> float | None:
    """Seconds to wait before the next try, None if there is none."""
    if not _is_temporary(error):
        return None
    if error.retry_after_seconds is not None:
        asked = error.retry_after_seconds
        return asked if asked <= LONGEST_PAUSE_SECONDS else None
    if only_told:
        return None
    longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * float(2**number))
    # Clients that were cut off together come back one after the other.
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  nothing secret is drawn


def _is_temporary(error: FinishlineError, statuses: Container[int] = TEMPORARY) -> bool:
    """Whether the same request may succeed later: a status that says so, or no answer at all."""
    if isinstance(error, TooManyRequests):
        return True
    return isinstance(error, Unavailable) and (error.status is None or error.status in statuses)
