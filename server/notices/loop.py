"""The loop beside the dispatcher that hands events on and delivers them.

It sleeps until something is due, until this process writes an event, or for some seconds: so long
may an event of another process wait. Any number of servers may run it.
"""

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from sqlalchemy.exc import DBAPIError

from finishline.rules.benchmarks.benchmark import Benchmark
from server.database import Database, utc_now
from server.notices.deliveries import Claimed, claim, first_due, next_due
from server.notices.pruning import PRUNE_EVERY, prune
from server.notices.sender import deliver, mail_server
from server.notices.spread import next_event_due, spread
from server.notices.waking import waking
from server.settings import Settings

log = logging.getLogger(__name__)

IDLE_SECONDS = 5.0
AWAY_SECONDS = 2.0
SHORTEST_SECONDS = 0.02
PLACES = 8
# Of one person's webhooks, and of all mail: slow receivers leave places to others.
PLACES_OF_ONE = 3
Moments = tuple[datetime | None, datetime | None]


class NoticeLoop:
    """A thread that decides, and a few that send, until it is stopped."""

    def __init__(
        self, database: Database, benchmarks: Mapping[str, Benchmark], settings: Settings
    ) -> None:
        self._database = database
        self._benchmarks = dict(benchmarks)
        self._settings = settings
        self._with_mail = mail_server(settings) is not None
        self._wake = waking(database.engine)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._under_way: dict[int, Claimed] = {}
        self._prune_at = utc_now() + timedelta(minutes=1)
        self._pool = ThreadPoolExecutor(PLACES, thread_name_prefix="notice")
        self._thread = threading.Thread(target=self._loop, name="notices", daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the tries under way."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout=10.0)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _loop(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                pause = self.run_once()
            except DBAPIError as error:
                log.warning("notices wait: the database does not answer (%s)", error.orig)
                pause = AWAY_SECONDS
            except Exception:
                log.exception("a round of notices failed; trying again")
                pause = AWAY_SECONDS
            self._wake.wait(pause)

    def run_once(self) -> float:
        """Hand on what waits, begin what is due; the seconds until there is more to do."""
        event_at, due_at = self._look()
        now = utc_now()
        if event_at is not None and event_at <= now:
            spread(self._database, self._benchmarks)
            event_at, due_at = self._look()
        if due_at is not None and due_at <= utc_now():
            self._begin()
            event_at, due_at = self._look()
        if now >= self._prune_at:
            self._prune_at = now + PRUNE_EVERY
            prune(self._database)
        return _pause(event_at, due_at)

    def _look(self) -> Moments:
        with self._database.read() as session:
            return next_event_due(session), next_due(session, with_mail=self._with_mail)

    def _begin(self) -> None:
        with self._database.read() as session:
            wanted = first_due(session, with_mail=self._with_mail, limit=PLACES * 4)
        for item in self._with_places(wanted):
            # One transaction each: whoever holds one claim waits for nobody who holds another.
            with self._database.write() as session:
                won = claim(session, item)
            if won:
                with self._lock:
                    self._under_way[item.id] = item
                self._pool.submit(self._try, item)

    def _with_places(self, wanted: list[Claimed]) -> list[Claimed]:
        """What can begin at this moment: a claim runs out, so nothing claimed waits for a place."""
        with self._lock:
            busy = list(self._under_way.values())
        receivers = {item.receiver for item in busy}
        lanes = Counter(item.lane for item in busy)
        chosen: list[Claimed] = []
        for item in wanted:
            if len(busy) + len(chosen) >= PLACES:
                break
            if item.receiver in receivers or lanes[item.lane] >= PLACES_OF_ONE:
                continue
            lanes[item.lane] += 1
            chosen.append(item)
        return chosen

    def _try(self, item: Claimed) -> None:
        try:
            answer = deliver(self._database, self._settings, item)
            if answer is not None and not answer.is_success:
                log.info("delivery %s failed: %s", item.id, answer.error or answer.status)
        except Exception:
            log.exception("delivery %s could not be settled; it is sent again", item.id)
        finally:
            with self._lock:
                self._under_way.pop(item.id, None)
            self._wake.set()


def _pause(event_at: datetime | None, due_at: datetime | None) -> float:
    """Until there is more to do, and never longer than an event of another process may wait.

    A delivery that is due and was not begun waits for a place: whoever gives one up wakes the loop.
    """
    now = utc_now()
    moments = [event_at] if event_at is not None else []
    if due_at is not None and due_at > now:
        moments.append(due_at)
    seconds = [max((moment - now).total_seconds(), SHORTEST_SECONDS) for moment in moments]
    return min([IDLE_SECONDS, *seconds])
