"""Times of last use: noted in memory, written a little later by a background thread.

No request waits for it, and none fails with it. Unwritten times are lost when a process is killed;
the next use makes up for it.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import ClassVar, Generic, TypeVar

from sqlalchemy import or_, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from finishline.periodic import PeriodicThread
from server.base.database import Database, utc_now
from server.base.models import Token

log = logging.getLogger(__name__)
Key = TypeVar("Key")


class NotedTimes(ABC, Generic[Key]):
    """The latest time of each key of one table, gathered for a while and then written together."""

    what: ClassVar[str]
    gathered_seconds: ClassVar[float]

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[Key, datetime] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self.thread = PeriodicThread(
            self.what, None, self._gather_and_write, self._woken, last_step=True
        )

    def note(self, key: Key) -> None:
        """Note that it is now."""
        with self._lock:
            self._waiting[key] = utc_now()
        self._woken.set()

    def write(self) -> int:
        """Write the noted times; returns their number. A failed write drops them."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return 0
        try:
            with self._database.write() as session:
                self.store(session, waiting)
        except SQLAlchemyError as error:
            log.warning("%s: %d were not written: %s", self.what, len(waiting), error)
            return 0
        return len(waiting)

    @abstractmethod
    def store(self, session: Session, times: Mapping[Key, datetime]) -> None:
        """Write these times."""

    def _gather_and_write(self) -> None:
        """Gather for a while, then write; at the stop write the rest."""
        self.thread.pause(self.gathered_seconds)
        self._woken.clear()
        self.write()


WRITTEN_EVERY = timedelta(minutes=1)


class LastUses(NotedTimes[int]):
    """Last use of each token in this process, which writes one once a minute at most."""

    what = "last-uses"
    gathered_seconds = 5.0

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._noted: dict[int, datetime] = {}

    def note(self, key: int) -> None:
        """Note that a token was used."""
        now = utc_now()
        last = self._noted.get(key)
        if last is None or now - last >= WRITTEN_EVERY:
            self._noted[key] = now
            super().note(key)

    def store(self, session: Session, times: Mapping[int, datetime]) -> None:
        """Write these uses, unless another process wrote a later one."""
        for token_id, moment in sorted(times.items()):
            earlier = Token.last_used_at < moment - WRITTEN_EVERY / 2
            session.execute(
                update(Token)
                .where(Token.id == token_id, or_(Token.last_used_at.is_(None), earlier))
                .values(last_used_at=moment)
            )
