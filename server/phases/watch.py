"""What the passing of a date changes, although nobody writes: embargoes end, rules freeze."""

import logging
import threading

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from finishline.rules.benchmarks.phases import is_frozen
from server.board_versions import raise_board_version
from server.database import Database, utc_now
from server.phases.definitions import RulingDefinitions
from server.phases.embargoes import due_embargoes, lift_embargo
from server.phases.queries import all_current_phases
from server.phases.schemas import phases_of
from server.phases.service import freeze_if_due
from server.settings import Settings
from server.viewer import ORGANISER

log = logging.getLogger(__name__)
INTERVAL_SECONDS = 1.0


class PhaseWatch:
    """A thread that looks once a second. Any number of servers may: each change has one winner."""

    def __init__(
        self, database: Database, definitions: RulingDefinitions, settings: Settings
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._settings = settings
        self._stop = threading.Event()
        self._is_away = False
        self._thread = threading.Thread(target=self._loop, name="phases", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the look under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10.0)

    def look_once(self) -> None:
        """Do what is due. Raises what SQLAlchemy does if the database is away."""
        now = utc_now()
        with self._database.read(ORGANISER) as session:
            rows = all_current_phases(session)
            to_freeze = [
                name
                for name, row in rows.items()
                if row.frozen_sha256 is None and is_frozen(phases_of(row), now)
            ]
            to_show = due_embargoes(session, now)
            self._definitions.follow(session, rows)
        for name in sorted(self._definitions.redefined):
            with self._database.write() as session:
                raise_board_version(session, name)
            self._definitions.redefined.discard(name)
        for name in to_freeze:
            if name in self._definitions.benchmarks:
                with self._database.write() as session:
                    folder = self._settings.benchmarks_dir
                    benchmark = self._definitions.benchmarks[name]
                    if freeze_if_due(session, benchmark, folder, now):
                        log.info("%s is frozen as %s", name, benchmark.sha256[:12])
        for name in to_show:
            with self._database.write() as session:
                shown = lift_embargo(session, name, now)
            log.info("the embargo of %s is over: %d submissions are shown", name, shown)

    def _loop(self) -> None:
        while not self._stop.wait(INTERVAL_SECONDS):
            try:
                self.look_once()
                self._is_away = False
            except (DBAPIError, PoolTimeoutError) as error:
                if not self._is_away:
                    log.error("the phases cannot be read: %s", error)
                self._is_away = True
            except Exception:
                log.exception("looking at the phases failed; trying again")
