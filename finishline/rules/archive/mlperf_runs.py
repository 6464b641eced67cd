"""The runs of an MLPerf result: their logs, and what is odd about them."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from finishline.rules.archive.definitions import general_runs
from finishline.rules.archive.files import Archive, ArchiveFile
from finishline.rules.archive.problems import Problems
from finishline.rules.benchmarks.benchmark import DIVISIONS, Benchmark
from finishline.rules.benchmarks.definition_tables import DataSet, ReachRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import LogFormatError, RuleError
from finishline.rules.logs.lines import MLLOG, format_of
from finishline.rules.logs.mllog import Reading, read_log
from finishline.rules.logs.text import is_placeholder, refuse_other_content
from finishline.rules.run import INIT_ALLOWANCE_SECONDS, Clock, Run
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.scoring.tta import excess_preparation_seconds, first_evaluation_at_target

# Times of MLPerf logs are milliseconds, of 13 digits since 2001.
FIRST_TIME = re.compile(rb'"time_ms": ?(\d{10})\d{3}\b')
HEAD_BYTES = 64 * 1024


def read_run(
    file: ArchiveFile,
    archive: Archive,
    *,
    target: QualityTarget | None,
    allowed: Mapping[str, Sequence[str]],
    alone: bool,
    problems: Problems,
) -> Reading:
    """Read one log, and note what is wrong in it. A log `alone` is of no set."""
    report, odd = problems.reporter("error"), problems.reporter("warning")
    try:
        first, chunks = _peek(archive.chunks(file))
        refuse_other_content(first, name=file.path)
        if not alone and is_placeholder(first):
            odd(_placeholder(first, file.path))
            return Reading(Run(file.path, clock="mlperf", evaluations=()), placeholder=True)
        return read_log(
            chunks,
            format_of(first) or MLLOG,
            name=file.path,
            allowed=allowed,
            report=report,
            odd=odd,
            target=target,
            every_line=False,
        )
    except RuleError as error:
        report(error)
        return Reading(Run(file.path, clock="mlperf", evaluations=()))


def day_of(file: ArchiveFile, archive: Archive) -> date | None:
    """The day on which a log begins by its first time, None where it does not tell."""
    try:
        found = FIRST_TIME.search(next(archive.chunks(file, size=HEAD_BYTES), b""))
    except LogFormatError:
        return None
    return None if found is None else datetime.fromtimestamp(int(found[1]), UTC).date()


def _peek(chunks: Iterator[bytes]) -> tuple[bytes, Iterable[bytes]]:
    first = next(chunks, b"")
    return first, itertools.chain((first,), chunks)


def _placeholder(content: bytes, path: str) -> LogFormatError:
    words = " ".join(content.decode("utf-8-sig").split())
    return LogFormatError(
        f"no log but {words[:80]!r}: the run counts as slower than all others",
        file=path,
        expected="the log of a run, or a run that the rule drops",
        code="placeholder",
    )


def stand_in(name: str | None, readings: Sequence[Reading]) -> Benchmark:
    """The definition of a benchmark that has none: a run that says success reached its target."""
    last = [reading.run.evaluations[-1] for reading in readings if reading.run.evaluations]
    by_samples = any(evaluation.epoch is None for evaluation in last)
    return Benchmark(
        benchmark_id=f"mlperf-{name or 'benchmark'}",
        title=name or "",
        version="",
        task="",
        about="",
        data_set=DataSet("", "", None, None, None),
        target=QualityTarget("quality", -math.inf, "score", "higher"),
        reach=ReachRule("first_crossing"),
        clock=Clock("mlperf"),
        runs=general_runs(name or ""),
        divisions=DIVISIONS,
        log_names=(),
        hyperparameters={},
        replay=None,
        reference_runs=(),
        sha256="",
        convergence_unit="samples_count" if by_samples else "epoch_num",
    )


def published_run(reading: Reading, benchmark: Benchmark | None) -> Run:
    """The run of a log, its status "success" exactly if it may have converged by its own word.

    It did if it stopped with success. In v0.5, which need not tell, it did if it reached the target
    and did not fail. Preparation is free where no definition names the clock.
    Source: MLPerf training_rules.adoc, "Benchmark results".
    """
    run = reading.run
    status = run.status
    if status is None and reading.version == "0.5" and _has_reached(run, benchmark):
        status = "success"
    if not reading.trusted or run.stop_seconds is None or status != "success":
        status = "not converged"
    preparation = None if benchmark is None else run.preparation_seconds
    return replace(run, status=status, preparation_seconds=preparation)


def _has_reached(run: Run, benchmark: Benchmark | None) -> bool:
    if benchmark is None or not run.evaluations:
        return False
    target, reach = benchmark.target, benchmark.reach
    return first_evaluation_at_target(run.evaluations, target, reach) is not None


def run_record(reading: Reading, score: RunScore) -> dict[str, Any]:
    """A run as it stands in the record of its set."""
    run = reading.run
    return {
        "file": run.name.rpartition("/")[2],
        "tta_seconds": score.tta_seconds,
        "converged": score.reached,
        "convergence": score.convergence,
        "seeds": list(run.seeds),
        "status": run.status,
        "stop_seconds": run.stop_seconds,
        "final_quality": run.evaluations[-1].quality if run.evaluations else None,
        "evaluations": len(run.evaluations),
    }


def add_run_oddities(
    reading: Reading, run: Run, benchmark: Benchmark, division: str, problems: Problems
) -> None:
    """Note why a run did not converge, and preparation that is on its clock."""
    if reading.placeholder:
        return
    if not run.evaluations:
        problems.add(
            "no_evaluation",
            "no evaluation in the log: the run did not converge",
            file=run.name,
            field="eval_accuracy",
            expected="an evaluation that reaches the target",
            severity="warning",
        )
    if reading.trusted and run.status != "success":
        said = "has no status" if reading.run.status is None else f"says {reading.run.status}"
        ended = f"run_stop {said}: the run did not converge"
        if run.stop_seconds is None:
            ended = "no run_stop: the run did not finish"
        problems.add(
            "not_converged",
            f"{ended}, and counts as slower than all others",
            file=run.name,
            field="run_stop",
            expected="a run_stop with success",
            severity="warning",
        )
    excess = excess_preparation_seconds(run, benchmark.clock, division)
    if excess > 0:
        problems.add(
            "long_preparation",
            f"initialisation took {excess:.1f} s too long; they count in the result",
            file=run.name,
            field="init_start",
            expected=f"at most {INIT_ALLOWANCE_SECONDS[division] / 60:g} minutes",
            severity="warning",
        )
