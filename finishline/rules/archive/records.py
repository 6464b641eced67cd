"""Records of the submissions that were found in an archive: each scored, a bad one with why."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from finishline.rules.archive.claims import find_identical
from finishline.rules.archive.dawnbench import score_entry
from finishline.rules.archive.definitions import Definitions, tell_rounds
from finishline.rules.archive.files import Archive
from finishline.rules.archive.mlperf import Reader, score_log, score_set
from finishline.rules.archive.problems import Problems
from finishline.rules.archive.submissions import EntryFiles, ResultSet, Submission, find_submissions
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import StatisticsMissingError

Record = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """The submissions of one archive, with the data needed to score them."""

    submissions: list[Submission]
    archive: Archive
    identical: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def find_scorable(archive: Archive, *, asked_for_file: bool = False) -> Found:
    """Find the submissions of an archive, and which of their logs are byte for byte the same."""
    submissions = find_submissions(archive, asked_for_file=asked_for_file)
    runs = [file for found in submissions if isinstance(found, ResultSet) for file in found.runs]
    return Found(submissions, archive, find_identical(archive, runs))


def score_found(
    found: Found, benchmarks: Mapping[str, Benchmark], *, pruned: bool = True
) -> Iterator[Record]:
    """The record of every submission, in order of their paths; a bad one has its problems told."""
    definitions = Definitions(benchmarks)
    reader = Reader(
        archive=found.archive,
        definitions=definitions,
        pruned=pruned,
        identical=found.identical,
        rounds=tell_rounds(found.submissions, definitions),
    )
    for submission in found.submissions:
        try:
            record = _score(submission, reader)
        except StatisticsMissingError:
            raise
        except Exception as error:  # noqa: BLE001 - our fault must not hide other records
            record = _fault(submission, error)
        yield record


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
