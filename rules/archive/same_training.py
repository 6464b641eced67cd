"""Runs of one set that are one training under two names, with a seed or a name edited."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rules.archive.files import Archive, ArchiveFile
from rules.archive.problems import Problems
from rules.benchmark import Benchmark
from rules.claim_checks import check_same_logs
from rules.errors import RuleError
from rules.logs.mllog import read_mllog_chunks
from rules.logs.mllog_run import Reading
from rules.run import Run


def note_same_trainings(
    files: Sequence[ArchiveFile],
    readings: Sequence[Reading],
    archive: Archive,
    benchmark: Benchmark | None,
    problems: Problems,
) -> None:
    """Note the runs whose every quality and time is that of another of their set.

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
