"""Ctrl-C while others are still being asked: first it stops what comes next, then what is asked."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

SENTENCE = b"Stopping: waiting for what is on its way; press Ctrl-C again to leave it.\n"


class Interrupts:
    """How often Ctrl-C was pressed. `stopping` is an event, so that threads can wait for it."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.leaving = False

    def take(self, _number: int, _frame: FrameType | None) -> None:
        """Note one. From the third on it is a KeyboardInterrupt like any other."""
        if self.leaving:
            raise KeyboardInterrupt
        if self.stopping.is_set():
            self.leaving = True
            return
        self.stopping.set()
        # A buffered write is not allowed here: one may have been interrupted.
        with contextlib.suppress(OSError, ValueError):
            os.write(sys.stderr.fileno(), SENTENCE)


@contextlib.contextmanager
def noted_interrupts() -> Iterator[Interrupts]:
    """Note Ctrl-C within the block instead of raising KeyboardInterrupt (main thread only)."""
    interrupts = Interrupts()
    previous = signal.signal(signal.SIGINT, interrupts.take)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, previous)
