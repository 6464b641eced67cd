"""Which definition rules: the frozen one, whatever file this server has."""

import logging
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.orm import Session

from server.benchmarks.queries import definition, definition_on_disk, install_archives
from server.dependencies import OfferedBenchmarks
from server.models import BenchmarkPhases
from server.phases.queries import all_current_phases

log = logging.getLogger(__name__)


class RulingDefinitions:
    """The benchmarks of a server, each as it is frozen or else as its file was at the start.

    `benchmarks` is the application's own table; it is changed one whole entry at a time.
    `redefined` are those changed since somebody emptied it: what was kept of their boards may have
    been made under the definition before.
    """

    def __init__(self, benchmarks: OfferedBenchmarks, folder: Path) -> None:
        self.benchmarks = benchmarks
        self.redefined: set[str] = set()
        self._own = dict(benchmarks)
        self._folder = folder
        self._frozen: dict[str, str] = {}

    def begin(self, session: Session) -> None:
        """At the start: also offer what is frozen and has no file here."""
        rows = all_current_phases(session)
        self._take_installed(session)
        for benchmark_id, row in rows.items():
            if benchmark_id not in self._own and row.frozen_sha256 is not None:
                self._own[benchmark_id] = definition(session, row.frozen_sha256)
                self.benchmarks.offer(self._own[benchmark_id])
        self.follow(session, rows)
        self.redefined.clear()  # Nothing is kept yet.
        for sentence in self.differences():
            log.warning("%s", sentence)

    def follow(self, session: Session, rows: Mapping[str, BenchmarkPhases]) -> None:
        """Take over what was frozen, unfrozen or installed, here or by another server."""
        self._take_installed(session)
        self._frozen = {
            name: row.frozen_sha256 for name, row in rows.items() if row.frozen_sha256 is not None
        }
        for benchmark_id, own in self._own.items():
            sha256 = self._frozen.get(benchmark_id, own.sha256)
            if self.benchmarks[benchmark_id].sha256 == sha256:
                continue
            ruling = own if sha256 == own.sha256 else definition(session, sha256)
            self.benchmarks.offer(ruling)
            self.redefined.add(benchmark_id)
            log.info("%s is served under definition %s", benchmark_id, sha256[:12])

    def _take_installed(self, session: Session) -> None:
        install_archives(self.benchmarks, session)
        self._own = dict(self.benchmarks) | self._own

    def differences(self) -> list[str]:
        """A sentence for each frozen benchmark whose file is not the frozen text, as of now."""
        told = []
        for benchmark_id, frozen in sorted(self._frozen.items()):
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
