"""Copies in an archive: identical files, and logs of one training."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from finishline.rules.archive.files import Archive, ArchiveFile
from finishline.rules.archive.problems import Problems
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError, RuleError
from finishline.rules.logs.mllog import read_mllog_chunks
from finishline.rules.logs.mllog_run import Reading
from finishline.rules.scoring.run import Run
from finishline.rules.submissions.claim_checks import check_same_logs


def note_same_trainings(
    files: Sequence[ArchiveFile],
    readings: Sequence[Reading],
    archive: Archive,
    benchmark: Benchmark | None,
    problems: Problems,
) -> None:
    """Note runs that repeat every quality and time of another run of their set.

    Two trainings never take the same milliseconds to the same quality, so only logs that end alike
    are read for their whole curves. Published: runs 3 and 8 of tinycorp's tinybox_green, BERT of
    v4.1, differ in nothing but the seed.
    """
    ending: dict[tuple[float, float], list[int]] = defaultdict(list)
    for place, reading in enumerate(readings):
        run = reading.run
        if run.stop_seconds is not None and run.evaluations:
            ending[run.stop_seconds, run.evaluations[-1].quality].append(place)
    for places in ending.values():
        if len(places) > 1:
            runs = [_whole(files[i], readings[i], archive, benchmark) for i in places]
            for violation in check_same_logs(runs):
                problems.violate(violation, file=None)


def _whole(
    file: ArchiveFile, reading: Reading, archive: Archive, benchmark: Benchmark | None
) -> Run:
    """The run with all of its evaluations."""
    if len(reading.run.evaluations) == reading.evaluations:
        return reading.run
    try:
        whole = read_mllog_chunks(
            archive.chunks(file),
            name=file.path,
            allowed={},
            report=lambda error: None,
            detail="figures",
            target=benchmark.target if benchmark else None,
        )
    except RuleError:
        return reading.run
    return replace(reading.run, evaluations=whole.run.evaluations)


HEAD_BYTES = 4096


def find_identical(archive: Archive, files: Iterable[ArchiveFile]) -> dict[str, tuple[str, ...]]:
    """Map the path of every log that has copies to the paths of the others.

    Only files of one size that begin alike are read whole; one that cannot be read has no copies.
    """
    sound = [file for file in files if file.size and file.refused is None]
    alike = _groups(sound, lambda file: file.size)
    alike = [group for each in alike for group in _groups(each, lambda file: _head(archive, file))]
    same = [group for each in alike for group in _groups(each, lambda file: _digest(archive, file))]
    return {
        file.path: tuple(other.path for other in group if other is not file)
        for group in same
        for file in group
    }


def _groups(
    files: Iterable[ArchiveFile], key_of: Callable[[ArchiveFile], object]
) -> list[list[ArchiveFile]]:
    """The files that share a key with another."""
    groups: dict[object, list[ArchiveFile]] = defaultdict(list)
    for file in files:
        key = key_of(file)
        if key is not None:
            groups[key].append(file)
    return [group for group in groups.values() if len(group) > 1]


def _head(archive: Archive, file: ArchiveFile) -> bytes | None:
    try:
        return next(archive.chunks(file, size=HEAD_BYTES), None)
    except LogFormatError:
        return None


def _digest(archive: Archive, file: ArchiveFile) -> bytes | None:
    digest = hashlib.sha256()
    try:
        for chunk in archive.chunks(file):
            digest.update(chunk)
    except LogFormatError:
        return None
    return digest.digest()
