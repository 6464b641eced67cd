"""The runs of an MLPerf result: their logs, targets, and the time before their clock."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finishline.rules.archive.definitions import quality_in_logs
from finishline.rules.archive.files import Archive, ArchiveFile
from finishline.rules.archive.problems import Problem, Problems
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import LoggedQuality, QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.logs.mllog import Detail, read_mllog_chunks, read_preparation_seconds
from finishline.rules.logs.mllog_lines import MLLOG_MARK
from finishline.rules.logs.mllog_run import Reading
from finishline.rules.logs.mlp05 import MLP_MARK, read_mlp05_chunks
from finishline.rules.logs.mlp06 import MLP06_MARK, read_mlp06_chunks
from finishline.rules.logs.text import refuse_other_content
from finishline.rules.scoring.convergence import ConvergenceUnit, convergence_of_run
from finishline.rules.scoring.run import INIT_ALLOWANCE_SECONDS, Run
from finishline.rules.scoring.tta import excess_preparation_seconds, first_evaluation_at_target
from finishline.rules.submissions.claim_checks import check_published_run

# The ranks of a run start within minutes of each other.
CLOSE_TO_LIMIT_MS = INIT_ALLOWANCE_SECONDS["closed"] * 1000 / 2
_TIME_MS = re.compile(rb'"time_ms"\s*:\s*([0-9]{1,15})')


def may_exceed_allowance(start_of_log: bytes, started_ms: float | None) -> bool:
    """Whether a log, by its first bytes, may have more preparation than is free.

    `started_ms` is the time of its run_start. A log without any init_start tells of none.
    """
    at = start_of_log.find(b'"init_start"')
    if at < 0:
        return False
    began_ms = _time_ms(start_of_log, at)
    return began_ms is None or started_ms is None or started_ms - began_ms > CLOSE_TO_LIMIT_MS


def counted_preparation_seconds(run: Run, benchmark: Benchmark | None, problems: Problems) -> float:
    """Seconds of preparation that are on the clock of a run, and a note of them."""
    if benchmark is None:
        return 0.0
    division = run.division or "closed"
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
    return excess


def _time_ms(content: bytes, at: int) -> int | None:
    """The time in the line of a key found at a place, None for a line that does not tell it."""
    end = content.find(b"\n", at)
    line = content[content.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(content)]
    match = _TIME_MS.search(line)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class PublishedRun:
    """One run of a set. `run.status` is "success" exactly if it converged.

    `said` is the status its log gives; `run.stop_seconds` is when it stopped, converged or not;
    `tta_seconds`, with the preparation that is not free, and `convergence` are None if it did not
    converge.
    """

    run: Run
    said: str | None
    seeds: tuple[int, ...]
    version: str | None
    tta_seconds: float | None
    convergence: float | None
    evaluations: int

    @property
    def converged(self) -> bool:
        """Whether it reached the target, by its own word and by ours."""
        return self.tta_seconds is not None

    def record(self) -> dict[str, Any]:
        """The run as it stands in the record of its set."""
        last = self.run.evaluations[-1] if self.run.evaluations else None
        return {
            "file": self.run.name.rpartition("/")[2],
            "tta_seconds": self.tta_seconds,
            "converged": self.converged,
            "convergence": self.convergence,
            "seeds": list(self.seeds),
            "status": self.said,
            "stop_seconds": self.run.stop_seconds,
            "final_quality": last.quality if last else None,
            "evaluations": self.evaluations,
        }


def read_run(
    file: ArchiveFile,
    archive: Archive,
    *,
    name: str | None,
    benchmark: Benchmark | None,
    allowed: Mapping[str, Sequence[str]],
    every_line: bool,
    problems: Problems,
) -> tuple[Reading, str | None]:
    """Read one log; also its round if its format is that of one round: "0.5" or "0.6".

    `name` is the benchmark's in its path, if that tells.

    Nearly every run stops at the evaluation that reaches the target, so the others are read only
    where the last one did not reach it.
    """
    target = quality_in_logs(name, benchmark)
    details: tuple[Detail, ...] = ("all",) if every_line else ("last", "figures")
    for detail in details:
        found = Problems()
        reading, version = _read(
            file,
            archive,
            allowed,
            detail,
            target,
            found,
            counted=benchmark.convergence_unit if benchmark is not None else None,
        )
        if version or detail != "last" or has_reached(reading.run, benchmark):
            break
    for problem in found:
        problems.take(_weighed(problem, reading))
    return reading, version


def _weighed(problem: Problem, reading: Reading) -> Problem:
    """A problem, which is a mere remark where no figure can need its line.

    A line without a key is none that counts, and a run that never stopped has no time.
    """
    unfinished = reading.trusted and reading.run.stop_seconds is None
    keyless = problem.code == "bad_line" and problem.field == "key"
    if keyless or (unfinished and problem.code == "bad_json"):
        return replace(problem, severity="warning")
    return problem


def _read(
    file: ArchiveFile,
    archive: Archive,
    allowed: Mapping[str, Sequence[str]],
    detail: Detail,
    target: QualityTarget | LoggedQuality | None,
    found: Problems,
    *,
    counted: ConvergenceUnit | None,
) -> tuple[Reading, str | None]:
    report, notice = found.reporter("error"), found.reporter("warning")
    try:
        first, chunks = _peek(archive.chunks(file))
        refuse_other_content(first, name=file.path)
        older = MLLOG_MARK not in first
        if older and MLP_MARK in first:
            reading = read_mlp05_chunks(
                chunks,
                name=file.path,
                allowed=allowed,
                report=report,
                notice=notice,
                target=target,
            )
            return reading, "0.5"
        if older and MLP06_MARK in first:
            reading = read_mlp06_chunks(
                chunks,
                name=file.path,
                allowed=allowed,
                report=report,
                odd=notice,
                told=detail == "all",
                target=target,
            )
            return reading, "0.6"
        reading = read_mllog_chunks(
            chunks,
            name=file.path,
            allowed=allowed,
            report=report,
            notice=notice,
            odd=notice,
            detail=detail,
            target=target,
            counted=counted,
        )
        if detail != "all" and may_exceed_allowance(first, reading.started_ms):
            seconds = read_preparation_seconds((first,), name=file.path)
            if seconds is None:  # The run starts further on, or its times contradict each other.
                seconds = read_preparation_seconds(archive.chunks(file), name=file.path)
            reading = replace(reading, run=replace(reading.run, preparation_seconds=seconds))
    except RuleError as error:
        report(error)
        run = Run(file.path, clock="mlperf", evaluations=())
        reading = Reading(run, seeds=(), trusted=False, evaluations=0)
    return reading, None


def has_reached(run: Run, benchmark: Benchmark | None) -> bool:
    """Whether an evaluation reached the target; without a known target, whether one was made."""
    if not run.evaluations:
        return False
    if benchmark is None:
        return run.status == "success"
    target, reach = benchmark.target, benchmark.reach
    return first_evaluation_at_target(run.evaluations, target, reach) is not None


def judge_run(
    reading: Reading, version: str | None, benchmark: Benchmark | None, problems: Problems
) -> PublishedRun:
    """Whether a run converged, and when.

    It did if it stopped with success (in v0.5, which need not tell, without failure) and an
    evaluation before that had reached the target.
    Source: MLPerf training_rules.adoc, "Benchmark results".
    """
    run = reading.run
    reached = has_reached(run, benchmark)
    willing = run.status == "success" or (run.status is None and version == "0.5" and reached)
    stop_seconds = run.stop_seconds
    converged = bool(reading.trusted and stop_seconds is not None and willing and reached)
    _add_problems(run, reading, converged=converged, willing=willing, problems=problems)
    if benchmark is not None:
        for violation in check_published_run(run, benchmark, before_last=reading.before_last):
            problems.violate(violation, file=run.name)
    status = "success" if converged else "not converged"
    judged = run if run.status == status else replace(run, status=status)
    excess = counted_preparation_seconds(run, benchmark, problems)
    return PublishedRun(
        run=judged,
        said=run.status,
        seeds=reading.seeds,
        version=version,
        tta_seconds=stop_seconds + excess if converged and stop_seconds is not None else None,
        convergence=_convergence(judged, version, benchmark),
        evaluations=reading.evaluations,
    )


def _peek(chunks: Iterator[bytes]) -> tuple[bytes, Iterable[bytes]]:
    first = next(chunks, b"")
    return first, itertools.chain((first,), chunks)


def _convergence(run: Run, version: str | None, benchmark: Benchmark | None) -> float | None:
    if run.status != "success":
        return None
    last = run.evaluations[-1]
    if version == "0.5":
        return last.epoch
    if benchmark is None:
        unit = "samples_count" if last.epoch is None else "epoch_num"
        return convergence_of_run(run, unit="samples_count" if unit[0] == "s" else "epoch_num")
    target, reach = benchmark.target, benchmark.reach
    at = first_evaluation_at_target(run.evaluations, target, reach) if target.offline else None
    return convergence_of_run(run, unit=benchmark.convergence_unit, at=at)


def _add_problems(
    run: Run, reading: Reading, *, converged: bool, willing: bool, problems: Problems
) -> None:
    if converged:
        return
    if not run.evaluations and not reading.evaluations:
        problems.add(
            "no_evaluation",
            "no evaluation in the log: the run did not converge",
            file=run.name,
            field="eval_accuracy",
            expected="an evaluation that reaches the target",
            severity="warning",
        )
    if willing and reading.trusted:
        problems.add(
            "success_without_target",
            "run_stop says success, but no evaluation before it reached the target",
            file=run.name,
            field="run_stop",
            expected="an evaluation at the target",
        )
    elif run.stop_seconds is None and reading.trusted:
        message = "no run_stop: the run did not finish, and counts as slower than all others"
        problems.add(
            "not_converged",
            message,
            file=run.name,
            field="run_stop",
            expected="a run_stop with success",
            severity="warning",
        )
    elif reading.trusted:
        said = "has no status" if run.status is None else f"says {run.status}"
        message = f"run_stop {said}: the run did not converge, and counts as slower than all others"
        problems.add(
            "not_converged",
            message,
            file=run.name,
            field="run_stop",
            expected="success",
            severity="warning",
        )
