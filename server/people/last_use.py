"""Times of tokens' last use: noted in memory, written a little later by a background thread.

No request waits for it, and none fails with it. A process writes a token once a minute at most.
Unwritten times are lost when a process is killed; the next use makes up for it.
"""

import logging
import threading
from datetime import datetime, timedelta

from sqlalchemy import or_, update
from sqlalchemy.exc import SQLAlchemyError

from finishline.periodic import PeriodicThread
from server.base.database import Database, utc_now
from server.base.models import Token

log = logging.getLogger(__name__)
WRITTEN_EVERY = timedelta(minutes=1)
GATHERED_SECONDS = 5.0


class LastUses:
    """Cache of the last use of each token in this process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[int, datetime] = {}
        self._waiting: dict[int, datetime] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self.thread = PeriodicThread(
            "last-uses", None, self._gather_and_write, self._woken, last_step=True
        )

    def note(self, token_id: int) -> None:
        """Note that a token was used."""
        now = utc_now()
        last = self._noted.get(token_id)
        if last is not None and now - last < WRITTEN_EVERY:
            return
        with self._lock:
            self._noted[token_id] = self._waiting[token_id] = now
        self._woken.set()

    def write(self) -> int:
        """Write the noted times; returns the number of tokens. A failed write drops them."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return 0
        try:
            with self._database.write() as session:
                for token_id, moment in sorted(waiting.items()):
                    earlier = Token.last_used_at < moment - WRITTEN_EVERY / 2
                    session.execute(
                        update(Token)
                        .where(Token.id == token_id, or_(Token.last_used_at.is_(None), earlier))
                        .values(last_used_at=moment)
                    )
        except SQLAlchemyError as error:
            log.warning("the last use of %d tokens was not written: %s", len(waiting), error)
            return 0
        return len(waiting)

    def _gather_and_write(self) -> None:
        """Gather the uses of a few seconds, write them; at the stop write the rest."""
        self.thread.pause(GATHERED_SECONDS)
        self._woken.clear()
        self.write()
