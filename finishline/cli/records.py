"""The records of an archive on this machine, one for each submission in it."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from finishline.cli.archive_files import list_archive
from finishline.cli.errors import CliError, ExitCode
from finishline.rules.archive.dawnbench import score_entry
from finishline.rules.archive.definitions import Definitions, tell_rounds
from finishline.rules.archive.files import Archive
from finishline.rules.archive.mlperf import Reader, score_log, score_set
from finishline.rules.archive.problems import Problems
from finishline.rules.archive.same_training import find_identical
from finishline.rules.archive.submissions import EntryFiles, ResultSet, Submission, find_submissions
from finishline.rules.benchmarks.benchmark import Benchmark

Record = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """The submissions of one path, and what it takes to score them."""

    submissions: list[Submission]
    archive: Archive
    identical: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def find_in(path: Path) -> Found:
    """What a path holds. Raises CliError if it is not there."""
    try:
        listing = list_archive(path)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CliError(f"Cannot read {path} ({reason}).", exit_code=ExitCode.REFUSED) from error
    submissions = find_submissions(listing.archive, asked_for_file=listing.is_file)
    runs = [file for found in submissions if isinstance(found, ResultSet) for file in found.runs]
    return Found(submissions, listing.archive, find_identical(listing.archive, runs))


def score_found(
    found: Found, benchmarks: Mapping[str, Benchmark], *, pruned: bool, every_line: bool
) -> Iterator[Record]:
    """The record of every submission, in order of their paths; a bad one has its problems told."""
    definitions = Definitions(benchmarks)
    reader = Reader(
        archive=found.archive,
        definitions=definitions,
        pruned=pruned,
        every_line=every_line,
        identical=found.identical,
        rounds=tell_rounds(found.submissions, definitions),
    )
    with _collector_paused():
        for submission in found.submissions:
            try:
                record = _score(submission, reader)
            except Exception as error:  # noqa: BLE001 - our fault must not hide other records
                record = _fault(submission, error)
            yield record


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Without looking for garbage in cycles: reading logs makes many objects and no cycle."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _score(submission: Submission, reader: Reader) -> Record:
    if isinstance(submission, EntryFiles):
        return score_entry(submission, reader.archive, reader.definitions)
    if isinstance(submission, ResultSet):
        return score_set(submission, reader)
    return score_log(submission, reader)


def _fault(submission: Submission, error: Exception) -> Record:
    problems = Problems()
    problems.add(
        "internal_error",
        f"this submission could not be scored ({type(error).__name__}); please report it",
        file=submission.path,
    )
    listed = [asdict(problem) for problem in problems]
    return {"path": submission.path, "eligible": False, "problems": listed}
