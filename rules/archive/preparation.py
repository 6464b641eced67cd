"""Runs that prepared for longer than is free: what is over the limit is on their clock.

Every rank of a run may log an init_start, thousands in all, and hardly a run comes near the limit:
only the logs of those that may be over it are read line by line.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rules.archive.files import Archive, ArchiveFile
from rules.archive.problems import Problems
from rules.benchmark import Benchmark
from rules.clock import INIT_ALLOWANCE_SECONDS
from rules.logs.mllog import read_mllog_chunks
from rules.logs.mllog_run import Reading
from rules.quality import LoggedQuality, QualityTarget
from rules.run import Run
from rules.tta import excess_preparation_seconds

# The ranks of a run start within minutes of each other.
CLOSE_TO_LIMIT_MS = INIT_ALLOWANCE_SECONDS["closed"] * 1000 / 2
_TIME_MS = re.compile(rb'"time_ms"\s*:\s*([0-9]{1,15})')


def may_exceed_allowance(start_of_log: bytes, started_ms: float | None) -> bool:
    """Whether a log whose first bytes are given may tell of more preparation than is free.

    `started_ms` is the time of its run_start. A log without any init_start tells of none.
    """
    at = start_of_log.find(b'"init_start"')
    if at < 0:
        return False
    began_ms = _time_ms(start_of_log, at)
    return began_ms is None or started_ms is None or started_ms - began_ms > CLOSE_TO_LIMIT_MS


def with_ledger(
    reading: Reading,
    file: ArchiveFile,
    archive: Archive,
    allowed: Mapping[str, Sequence[str]],
    target: QualityTarget | LoggedQuality | None,
) -> Reading:
    """A reading with the ledger and the preparation that only all lines give.

    What is wrong in those is left alone.
    """
    whole = read_mllog_chunks(
        archive.chunks(file),
        name=file.path,
        allowed=allowed,
        report=lambda error: None,
        target=target,
    )
    run = replace(
        reading.run,
        ledger=whole.run.ledger,
        preparation_seconds=whole.run.preparation_seconds,
    )
    return replace(reading, run=run)


def counted_preparation_seconds(run: Run, benchmark: Benchmark | None, problems: Problems) -> float:
    """Seconds of preparation that are on the clock of a run, and a note of them."""
    if benchmark is None:
        return 0.0
    division = run.division or "closed"
    excess = excess_preparation_seconds(run, benchmark.clock, division)
    if excess > 0:
        problems.add(
            "long_preparation",
            f"{excess:.1f} s more than is free from init_start to run_start: they count",
            file=run.name,
            field="init_start",
            expected=f"at most {INIT_ALLOWANCE_SECONDS[division] / 60:g} minutes",
            severity="warning",
        )
    return excess


def _time_ms(content: bytes, at: int) -> int | None:
    """The time in the line of a key found at a place, None for a line that does not tell it."""
    end = content.find(b"\n", at)
    line = content[content.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(content)]
    match = _TIME_MS.search(line)
    return int(match[1]) if match else None
