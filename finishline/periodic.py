"""Repeat a step in a thread: on time, at once when woken, until stopped."""

import logging
import threading
from collections.abc import Callable
from typing import Self

log = logging.getLogger(__name__)

JOIN_SECONDS = 10.0


class PeriodicThread:
    """Thread that waits for `seconds` or for `wakeup`, calls `step`, and waits again.

    A step may return the seconds to wait next. After an exception it is called again after
    `seconds`. Each kind of exception is logged once, and so is the recovery. A kind in `outages`
    comes from outside, such as an unreachable database, so its line has no traceback.

    With `last_step` it is called once more at the stop. `was_woken` is whether the present step was
    woken rather than due.
    """

    def __init__(
        self,
        name: str,
        seconds: float | None,
        step: Callable[[], float | None],
        wakeup: threading.Event | None = None,
        *,
        outages: tuple[type[Exception], ...] = (),
        last_step: bool = False,
    ) -> None:
        self.was_woken = False
        self._seconds = seconds
        self._step = step
        self._wakeup = wakeup or threading.Event()
        self._outages = outages
        self._last_step = last_step
        self._stopping = threading.Event()
        self._has_ended = False
        self._logged: set[type[Exception]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        """Whether it must stop, so the present step is the last."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread, once. Its first step waits too, unless it is woken."""
        self._thread.start()

    def wake(self) -> None:
        self._wakeup.set()

    def stop(self, *, join_seconds: float | None = JOIN_SECONDS) -> None:
        """Stop after the current step. Waits for it at most `join_seconds`."""
        self._stopping.set()
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join(join_seconds)

    def end(self) -> None:
        """Skip all further steps, the last one too. The step itself calls it."""
        self._has_ended = True

    def pause(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def _run(self) -> None:
        seconds = self._seconds
        while not self._has_ended:
            # A step may have cleared the wakeup that came with the stop.
            self.was_woken = self.is_stopping or self._wakeup.wait(seconds)
            is_last = self.is_stopping
            if is_last and not self._last_step:
                return
            self._wakeup.clear()
            seconds = self._attempt()
            if is_last:
                return

    def _attempt(self) -> float | None:
        try:
            asked = self._step()
        except Exception as error:
            if type(error) not in self._logged:
                self._logged.add(type(error))
                is_outage = isinstance(error, self._outages)
                log.error(
                    "%s failed (%s); trying again until it works",
                    self._thread.name,
                    str(error.__cause__ or error).strip(),
                    exc_info=None if is_outage else error,
                )
            return self._seconds
        if self._logged:
            self._logged.clear()
            log.info("%s works again", self._thread.name)
        return self._seconds if asked is None else asked
