"""Watch the memory of a box: all processes below one, ten times a second."""

import threading
from collections.abc import Callable
from pathlib import Path

import psutil

PERIOD_SECONDS = 0.1


class MemoryWatch:
    """Call `exceeded` once when the processes below `pid` hold more than `limit_bytes`.

    Use it as a context: the watch ends with it.
    """

    def __init__(self, pid: int, *, limit_bytes: int, exceeded: Callable[[int], None]) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._limit = limit_bytes
        self._exceeded = exceeded
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="box-memory", daemon=True)
        self._thread.start()

    def __enter__(self) -> "MemoryWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            used = tree_bytes(self._pid)
            self.peak_bytes = max(self.peak_bytes, used)
            if used > self._limit:
                self._exceeded(used)
                return


def tree_bytes(pid: int) -> int:
    """Bytes that the processes below one hold; shared pages count once for all that map them."""
    total = 0
    try:
        processes = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        total += _proportional_bytes(process.pid)
    return total


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    fields = ("Pss:", "SwapPss:")
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(fields))
