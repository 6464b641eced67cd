"""Plan an import: the submissions of an archive to upload, and their form."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import Any

from finishline.rules.archive.agreement import read_description
from finishline.rules.archive.claims import set_claim
from finishline.rules.archive.mlperf import HPC
from finishline.rules.archive.parcels import Parcel
from finishline.rules.archive.problems import Problems, Severity
from finishline.rules.archive.records import Found, Record, score_found
from finishline.rules.archive.submissions import EntryFiles, ResultSet, SingleLog, Submission
from finishline.rules.benchmarks.benchmark import Benchmark


class Kind(StrEnum):
    """Kinds of archive."""

    DAWNBENCH = "dawnbench"
    MLPERF = "mlperf"


@dataclass(frozen=True)
class Unsent:
    """A submission that is not sent: for its problems, or without any for the reason alone."""

    path: str
    reason: str
    problems: Sequence[Mapping[str, Any]] = ()


def of_kind(found: Found, kind: Kind) -> Found:
    """The submissions of one kind of archive; those of the other kind are left alone."""
    wanted = EntryFiles if kind is Kind.DAWNBENCH else ResultSet | SingleLog
    chosen: list[Submission] = [each for each in found.submissions if isinstance(each, wanted)]
    return replace(found, submissions=chosen)


def plan_import(
    found: Found, benchmarks: Mapping[str, Benchmark], *, published: date | None = None
) -> Iterator[Parcel | Unsent]:
    """Yield the upload of each submission, or why it is not sent, in order of their paths.

    `published` is the day of the round, for the sets of a round without a day in our table.
    """
    records = score_found(found, benchmarks)
    for submission, record in zip(found.submissions, records, strict=True):
        if any(problem["code"] == "internal_error" for problem in record["problems"]):
            yield _unsent(record, "It cannot be read.")
        elif isinstance(submission, EntryFiles):
            yield _plan_entry(submission, record)
        elif record["suite"] == HPC:
            yield Unsent(submission.path, f"{HPC} is not scored")
        elif isinstance(submission, ResultSet) and submission.in_package:
            yield _plan_set(submission, record, found, published)
        else:
            yield _outside(submission)


def _plan_entry(entry: EntryFiles, record: Record) -> Parcel | Unsent:
    definition = record["definition"]
    # An entry of inference is its JSON alone, even with other files beside it.
    logs = [] if record["kind"] == "inference" else [entry.tsv]
    if entry.json is None or None in logs or definition is None:
        return _unsent(record, "The entry is incomplete.")
    return Parcel(
        path=entry.path,
        claim=entry.json,
        logs=[log for log in logs if log is not None],
        benchmark_id=definition["id"],
        problems=record["problems"],
    )


def _plan_set(found: ResultSet, record: Record, all_found: Found, published: date | None) -> Parcel:
    # Its problems are in the record already.
    description = read_description(found, all_found.archive, record["version"], Problems())
    return Parcel(
        path=found.path,
        claim=set_claim(record, description) | _day(published),
        logs=found.runs,
        problems=record["problems"],
    )


def _day(published: date | None) -> dict[str, str]:
    return {} if published is None else {"submitted_on": published.isoformat()}


def _outside(submission: Submission) -> Unsent:
    return Unsent(
        submission.path,
        "outside a package (ORG/results/SYSTEM/BENCHMARK), so its submitter is unknown",
    )


def _unsent(record: Record, reason: str) -> Unsent:
    return Unsent(record["path"], reason, of_severity(record["problems"], "error"))


def of_severity(
    problems: Sequence[Mapping[str, Any]], severity: Severity
) -> list[Mapping[str, Any]]:
    """The problems of a record that are errors, or those that are warnings."""
    return [problem for problem in problems if problem["severity"] == severity]
