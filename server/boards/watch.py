"""Asking the database for the versions of all boards, while somebody reads boards."""

import logging
import threading
import time
from contextlib import suppress

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from server.board_versions import board_versions, known_versions
from server.database import Database

log = logging.getLogger(__name__)

# Well under FRESH_SECONDS, so that one late round leaves nobody without a fresh version.
INTERVAL_SECONDS = 0.1
IDLE_SECONDS = 2.0
AWAY_SECONDS = 1.0


class VersionWatch:
    """A thread that asks once an interval, and sleeps when no board was read for a while."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = known_versions(database.engine)
        self._wanted = threading.Event()
        self._wanted_at = 0.0
        self._stop = threading.Event()
        self._is_away = False
        self._thread = threading.Thread(target=self._loop, name="board-versions", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the question under way."""
        self._stop.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)

    def want(self, now: float) -> None:
        """Somebody reads a board at this time.monotonic(): go on asking, or begin to."""
        self._wanted_at = now
        if not self._wanted.is_set():
            self._wanted.set()

    def ask_once(self) -> None:
        """One statement for all boards. Raises what SQLAlchemy does if the database is away."""
        asked_at = time.monotonic()
        with self._database.read() as session:
            versions = board_versions(session)
        self._known.note_all(versions, asked_at=asked_at)

    def try_once(self) -> None:
        """The same; while the database is away nothing is learnt."""
        with suppress(DBAPIError, PoolTimeoutError):
            self.ask_once()

    def _loop(self) -> None:
        while not self._stop.is_set():
            self._wanted.wait()
            # Cleared before the time is looked at, so that nobody who wants it later is missed.
            self._wanted.clear()
            while not self._stop.is_set() and self._is_wanted():
                self._stop.wait(self._try_to_ask())

    def _is_wanted(self) -> bool:
        return time.monotonic() - self._wanted_at < IDLE_SECONDS

    def _try_to_ask(self) -> float:
        """Ask; returns the seconds to wait until the next time."""
        try:
            self.ask_once()
        except (DBAPIError, PoolTimeoutError) as error:
            if not self._is_away:
                log.error("the versions of the boards cannot be read: %s", error)
            self._is_away = True
            return AWAY_SECONDS
        except Exception:
            log.exception("reading the versions of the boards failed; trying again")
            return AWAY_SECONDS
        self._is_away = False
        return INTERVAL_SECONDS
