"""The records of each benchmark, derived once per version of its board and kept."""

import threading
from collections.abc import Mapping

from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from server.leaderboard.service import board_versions
from server.records.queries import list_records
from server.records.schemas import DivisionRecords, RecordList


class RecordCache:
    """At most one list for each benchmark asked for; every write that can change it outdates it."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, RecordList]] = {}
        self._lock = threading.Lock()

    def read(self, session: Session, benchmarks: Mapping[str, Benchmark]) -> dict[str, RecordList]:
        """The records of those of the benchmarks that have a submission, by benchmark id."""
        # Versions come first: a write in between leaves a list that the next read derives again.
        versions = board_versions(session)
        return {
            benchmark_id: self._of(session, benchmark, versions[benchmark_id])
            for benchmark_id, benchmark in benchmarks.items()
            if benchmark_id in versions
        }

    def _of(self, session: Session, benchmark: Benchmark, version: int) -> RecordList:
        with self._lock:
            kept = self._kept.get(benchmark.benchmark_id)
        if kept is not None and kept[0] == version:
            return kept[1]
        records = list_records(session, benchmark)
        with self._lock:
            self._kept[benchmark.benchmark_id] = (version, records)
        return records


def standing_division(records: RecordList | None) -> DivisionRecords | None:
    """The division whose standing record is the lowest; None before the first record."""
    divisions = [d for d in records.divisions if d.records] if records is not None else []
    return min(divisions, key=lambda d: d.records[-1].tta_seconds, default=None)
