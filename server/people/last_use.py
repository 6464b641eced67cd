"""When tokens were last used: noted in memory, written a little later by a thread of its own.

No request waits for it, and none fails with it. A process writes a token once a minute at most.
What a process had not written yet when it was killed is lost; the next use makes up for it.
"""

import logging
import threading
from datetime import datetime, timedelta

from sqlalchemy import or_, update
from sqlalchemy.exc import SQLAlchemyError

from server.base.database import Database, utc_now
from server.base.models import Token

log = logging.getLogger(__name__)
WRITTEN_EVERY = timedelta(minutes=1)
GATHERED_SECONDS = 5.0


class LastUses:
    """The last use of each token that this process has seen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[int, datetime] = {}
        self._waiting: dict[int, datetime] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def note(self, token_id: int) -> None:
        """A token was used just now."""
        now = utc_now()
        last = self._noted.get(token_id)
        if last is not None and now - last < WRITTEN_EVERY:
            return
        with self._lock:
            self._noted[token_id] = self._waiting[token_id] = now
        self._woken.set()

    def write(self) -> int:
        """Write what was noted; how many tokens. What cannot be written is dropped."""
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

    def start(self) -> None:
        """Write in the background from here on."""
        self._thread = threading.Thread(target=self._run, name="last-uses", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is left and end."""
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        """Sleep until a token is used, gather what comes within a few seconds, write it."""
        while not self._stopping.is_set():
            self._woken.wait()
            self._stopping.wait(GATHERED_SECONDS)
            self._woken.clear()
            self.write()
