"""The runs of an MLPerf result: their logs, targets, and the time before their clock."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finishline.rules.archive.files import Archive, ArchiveFile
from finishline.rules.archive.problems import Problems
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.logs.mllog import read_log
from finishline.rules.logs.mllog_lines import MLLOG, format_of
from finishline.rules.logs.mllog_run import Reading
from finishline.rules.logs.text import refuse_other_content
from finishline.rules.scoring.convergence import convergence_of_run
from finishline.rules.scoring.run import INIT_ALLOWANCE_SECONDS, Run
from finishline.rules.scoring.tta import excess_preparation_seconds, first_evaluation_at_target
from finishline.rules.submissions.claim_checks import check_published_run


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
            "evaluations": len(self.run.evaluations),
        }


def read_run(
    file: ArchiveFile,
    archive: Archive,
    *,
    target: QualityTarget | None,
    allowed: Mapping[str, Sequence[str]],
    problems: Problems,
) -> Reading:
    """Read one log, and note what is wrong in it."""
    report, odd = problems.reporter("error"), problems.reporter("warning")
    try:
        first, chunks = _peek(archive.chunks(file))
        refuse_other_content(first, name=file.path)
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


def has_reached(run: Run, benchmark: Benchmark | None) -> bool:
    """Whether an evaluation reached the target; without a known target, whether one was made."""
    if not run.evaluations:
        return False
    if benchmark is None:
        return run.status == "success"
    target, reach = benchmark.target, benchmark.reach
    return first_evaluation_at_target(run.evaluations, target, reach) is not None


def judge_run(reading: Reading, benchmark: Benchmark | None, problems: Problems) -> PublishedRun:
    """Whether a run converged, and when.

    It did if it stopped with success (in v0.5, which need not tell, without failure) and an
    evaluation before that had reached the target.
    Source: MLPerf training_rules.adoc, "Benchmark results".
    """
    run = reading.run
    reached = has_reached(run, benchmark)
    untold = run.status is None and reading.version == "0.5"
    willing = run.status == "success" or (untold and reached)
    stop_seconds = run.stop_seconds
    converged = bool(reading.trusted and stop_seconds is not None and willing and reached)
    _add_problems(run, reading, converged=converged, willing=willing, problems=problems)
    if benchmark is not None:
        for violation in check_published_run(run, benchmark):
            problems.violate(violation, file=run.name)
    status = "success" if converged else "not converged"
    judged = run if run.status == status else replace(run, status=status)
    excess = counted_preparation_seconds(run, benchmark, problems)
    return PublishedRun(
        run=judged,
        said=run.status,
        seeds=reading.seeds,
        version=reading.version,
        tta_seconds=stop_seconds + excess if converged and stop_seconds is not None else None,
        convergence=_convergence(judged, reading.version, benchmark),
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
        return convergence_of_run(run, unit="samples_count" if last.epoch is None else "epoch_num")
    target, reach = benchmark.target, benchmark.reach
    at = first_evaluation_at_target(run.evaluations, target, reach) if target.offline else None
    return convergence_of_run(run, unit=benchmark.convergence_unit, at=at)


def _add_problems(
    run: Run, reading: Reading, *, converged: bool, willing: bool, problems: Problems
) -> None:
    if converged:
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
