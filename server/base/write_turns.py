"""Queue the writers of an SQLite file, threads and processes, so that each gets its turn.

A writer that finds the file locked sleeps in SQLite and retries up to 100 ms later, when another
process may have begun its next transaction. So one process writes again and again, and in the
other all writers wait behind the sleeping one.

Here two empty files beside the database serve as locks: the next process holds one of them while
it waits for the other, so that no process writes twice while another waits. The locks are
advisory: a writer that waited too long, or cannot lock a file there, writes without them and
relies on the database's own lock. Locks of a killed process are free.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NEXT, TURN, SERVER = LOCK_FILES = ("-next", "-turn", "-server")
ASKED_EVERY_SECONDS = 0.001
PATIENCE_SECONDS = 2.0


def serve_alone(path: str) -> int:
    """Hold a file of SQLite for this server until the descriptor is closed, or the process ends.

    Raises RuntimeError if another server process holds it.
    """
    file = os.open(path + SERVER, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if not _try_to_lock(file):
        os.close(file)
        raise RuntimeError(
            f"another server process has {path}, and SQLite has one. Hint: stop that one, or use "
            "PostgreSQL for several processes."
        )
    return file


class WriteTurns:
    """Turns of one thread of this process after the other, and of one process after the other.

    Without a path, of a database in memory, there are no other processes.
    """

    def __init__(self, path: str | None) -> None:
        self._here = threading.Lock()
        self._path = path

    @contextmanager
    def take(self) -> Iterator[None]:
        """Wait for a turn; it ends with the block."""
        with self._here:
            turn = None if self._path is None else _wait_for_turn(self._path)
            try:
                yield
            finally:
                if turn is not None:
                    os.close(turn)


def _wait_for_turn(path: str) -> int | None:
    """The locked file, which ends the turn when it is closed; None for a turn without a lock."""
    until = time.monotonic() + PATIENCE_SECONDS
    with suppress(OSError):  # A full disk takes no file, a foreign one may lock none.
        following = _lock(path + NEXT, until=until)
        if following is not None:
            try:
                return _lock(path + TURN, until=until)
            finally:
                os.close(following)
    return None


def _lock(path: str, *, until: float) -> int | None:
    """A file that nobody else has locked, opened and locked; None if it is not free in time."""
    file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        while not (locked := _try_to_lock(file)) and time.monotonic() < until:
            time.sleep(ASKED_EVERY_SECONDS)
    except BaseException:
        os.close(file)
        raise
    if locked:
        return file
    os.close(file)
    return None


def _try_to_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
