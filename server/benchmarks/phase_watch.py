"""Loop that ends phases, and the definitions in force."""

import logging
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from sqlalchemy.orm import Session

from finishline.periodic import PeriodicThread
from server.base.board_versions import raise_board_version
from server.base.database import OUTAGES, Database, utc_now
from server.base.models import BenchmarkPhases
from server.base.services import OfferedBenchmarks
from server.base.settings import Settings
from server.base.viewer import ORGANISER
from server.benchmarks.phase_queries import all_current_phases, is_frozen
from server.benchmarks.phases import due_embargoes, freeze_if_due, lift_embargo
from server.benchmarks.queries import (
    added_definitions,
    definition,
    definition_on_disk,
    install_archives,
)
from server.benchmarks.views import phases_of

log = logging.getLogger(__name__)


class RulingDefinitions:
    """Definitions in force: a benchmark as it is frozen, else as its file was or it was added.

    `benchmarks` is the application's own table; it is changed one whole entry at a time.
    `redefined` are benchmarks with a definition that changed since it was last emptied: their
    cached boards may be of the earlier definition.
    """

    def __init__(self, benchmarks: OfferedBenchmarks, folder: Path) -> None:
        self.benchmarks = benchmarks
        self.redefined: set[str] = set()
        self._own = dict(benchmarks)
        self._shipped = frozenset(benchmarks)
        self._added: Mapping[str, str] = {}
        self._folder = folder
        self._frozen: dict[str, str] = {}

    def begin(self, session: Session) -> None:
        """Start: offer also the frozen benchmarks that have no file here."""
        rows = all_current_phases(session)
        self._take_installed(session)
        self._take_added(session)
        for benchmark_id, row in rows.items():
            if benchmark_id not in self._own and row.frozen_sha256 is not None:
                self._own[benchmark_id] = definition(session, row.frozen_sha256)
                self.benchmarks.offer(self._own[benchmark_id])
        self._adopt(session, rows)
        self.redefined.clear()  # Nothing is cached yet.
        for sentence in self.differences():
            log.warning("%s", sentence)

    def follow(self, session: Session, rows: Mapping[str, BenchmarkPhases]) -> None:
        """Adopt definitions frozen, unfrozen, installed or added, here or by another server."""
        self._take_installed(session)
        self._take_added(session)
        self._adopt(session, rows)

    def _adopt(self, session: Session, rows: Mapping[str, BenchmarkPhases]) -> None:
        self._frozen = {
            name: row.frozen_sha256 for name, row in rows.items() if row.frozen_sha256 is not None
        }
        for benchmark_id, own in self._own.items():
            sha256 = self._frozen.get(benchmark_id, own.sha256)
            ruled = self.benchmarks.get(benchmark_id)
            if ruled is not None and ruled.sha256 == sha256:
                continue
            ruling = own if sha256 == own.sha256 else definition(session, sha256)
            self.benchmarks.offer(ruling)
            self.redefined.add(benchmark_id)
            log.info("%s is served under definition %s", benchmark_id, sha256[:12])

    def _take_installed(self, session: Session) -> None:
        install_archives(self.benchmarks, session)
        self._own = dict(self.benchmarks) | self._own

    def _take_added(self, session: Session) -> None:
        """Take the definitions that organisers added; a file of the folder goes before them."""
        self._added = added_definitions(session, without=self._shipped)
        added = {name: definition(session, sha256) for name, sha256 in self._added.items()}
        self._own = self._own | added

    def differences(self) -> list[str]:
        """Warning for each frozen benchmark whose file on disk differs from the frozen text."""
        told = []
        for benchmark_id, frozen in sorted(self._frozen.items()):
            if benchmark_id in self._added:
                continue
            found = definition_on_disk(benchmark_id, self._folder)
            if found == frozen:
                continue
            is_what = "is missing" if found is None else f"is {found[:12]}"
            told.append(
                f"{benchmark_id}.toml {is_what}, but the rules are frozen as {frozen[:12]}, which "
                "every submission is scored under; put the frozen text back, or unfreeze the "
                "benchmark."
            )
        return told


INTERVAL_SECONDS = 1.0


class PhaseWatch:
    """Thread that polls every second. Any number of servers may: each change has one winner.

    A request that adds a benchmark looks at once.
    """

    def __init__(
        self, database: Database, definitions: RulingDefinitions, settings: Settings
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._settings = settings
        self._lock = Lock()
        self.thread = PeriodicThread("phases", INTERVAL_SECONDS, self.look_once, outages=OUTAGES)

    def look_once(self) -> None:
        """Freeze and reveal due benchmarks. Raises SQLAlchemyError if the database is away."""
        with self._lock:
            self._look()

    def _look(self) -> None:
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
