"""Between SIGTERM and the stop: say so first, and stop once nobody sends requests here."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from server.health.readiness import Readiness


@contextmanager
def drained_before_stop(readiness: Readiness, *, drain_seconds: float) -> Iterator[None]:
    """Not ready from SIGTERM on; the server's own handler gets the signal `drain_seconds` later.

    A second SIGTERM stops at once. Where another program than a server runs the application, or
    not in the main thread, signals are left alone.
    """
    stop = signal.getsignal(signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(stop):
        yield
        readiness.is_draining = True
        return

    timers: list[threading.Timer] = []

    def drain(number: int, frame: FrameType | None) -> None:
        if readiness.is_draining or drain_seconds == 0:
            readiness.is_draining = True
            stop(number, frame)
            return
        readiness.is_draining = True
        timers.append(threading.Timer(drain_seconds, stop, (number, None)))
        timers[-1].daemon = True
        timers[-1].start()

    signal.signal(signal.SIGTERM, drain)
    try:
        yield
    finally:
        readiness.is_draining = True
        signal.signal(signal.SIGTERM, stop)
        for timer in timers:  # A second SIGTERM was faster.
            timer.cancel()
