"""The record of an MLPerf result set: every figure it was published with, from its own logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from finishline.rules.archive.agreement import (
    check_agreement,
    division_called,
    read_description,
    read_scaling,
)
from finishline.rules.archive.definitions import (
    Definitions,
    general_runs,
    names_of,
    possible_rounds,
)
from finishline.rules.archive.files import Archive, ArchiveFile, Place, shown, version_of
from finishline.rules.archive.mlperf_runs import PublishedRun, judge_run, read_run
from finishline.rules.archive.problems import Problems
from finishline.rules.archive.set_problems import (
    add_copies,
    add_odd_names,
    add_set_problems,
    note_unnamed_round,
)
from finishline.rules.archive.submissions import ResultSet, SingleLog
from finishline.rules.benchmarks.benchmark import DIVISIONS, Benchmark, RunsRule
from finishline.rules.errors import RuleError
from finishline.rules.logs.mllog_run import Reading
from finishline.rules.scoring.aggregate import coefficient_of_variation_percent, olympic_mean
from finishline.rules.scoring.convergence import RcpVerdict
from finishline.rules.scoring.normalisation import check_set
from finishline.rules.scoring.run import Run
from finishline.rules.scoring.scoring import scored_places
from finishline.rules.submissions.claim_checks import check_same_logs

KEYS = (
    "path", "organisation", "system", "benchmark", "division", "runs", "n_runs",
    "olympic_mean_seconds", "normalised_seconds", "rcp", "cv_percent", "reached_fraction",
    "global_batch_size", "problems", "eligible", "cv_all_percent", "version", "scored_runs",
    "scaling_json", "description", "definition", "runs_started", "runs_reached",
)  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """Options for reading sets.

    `pruned` compares convergence with the pruned reference points. `identical` names the copies of
    a log, by path, and `rounds` the possible rounds of packages whose folders name none.
    """

    archive: Archive
    definitions: Definitions
    pruned: bool = True
    identical: Mapping[str, tuple[str, ...]] | None = None
    rounds: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)


def score_set(found: ResultSet, reader: Reader) -> dict[str, Any]:
    """Score one result set into a record; `problems` lists its faults."""
    problems = Problems()
    name = shown(found.place[-1]) if found.in_package else None
    possible = possible_rounds(found, reader.rounds)
    runs, benchmark = _read_runs(found.runs, name, possible, reader, problems)
    record = _figures(runs, benchmark, found.path, reader, problems, name=name)
    if found.in_package:
        record["organisation"] = shown(_organisation(found, record["version"]))
        record["system"] = shown(found.place[-2])
        record["benchmark"] = name
        description = read_description(found, reader.archive, record["version"], problems)
        if description is not None:
            record["description"] = dict(description.fields)
            record["division"] = record["division"] or _called(description.division)
        check_agreement(record, [run.run for run in runs], description, problems)
        add_odd_names(found.runs, problems)
    read_scaling(found, reader.archive, record, problems)
    return _finished(record, problems)


def score_log(found: SingleLog, reader: Reader) -> dict[str, Any]:
    """The record of a log outside any package, as a set of one run."""
    problems = Problems()
    named = version_of(found.file.place[:-1])
    possible = () if named is None else (named,)
    runs, benchmark = _read_runs([found.file], None, possible, reader, problems)
    record = _figures(runs, benchmark, found.path, reader, problems, alone=True)
    record["organisation"] = runs[0].run.organisation
    record["system"] = runs[0].run.platform
    return _finished(record, problems)


def _read_runs(
    files: Sequence[ArchiveFile],
    name: str | None,
    possible: tuple[str, ...],
    reader: Reader,
    problems: Problems,
) -> tuple[list[PublishedRun], Benchmark | None]:
    """The runs of a set, and the definition they are judged by: of `possible` rounds the newest.

    Its name comes from the path; outside a package from the first log that says.
    """
    definitions = reader.definitions
    version = possible[-1] if possible else None
    benchmark = definitions.of_mlperf(name, version) if name else None
    read_as = definitions.quality_in_logs(name, benchmark)
    readings, told = _read_files(files, name, benchmark, reader)
    old_format = next((reading.version for reading in readings if reading.version), None)
    version = old_format or version
    name = name or next((r.run.benchmark for r in readings if r.run.benchmark), None)
    known = definitions.of_mlperf(name, version) if name else None
    quality = definitions.quality_in_logs(name, known)
    if quality is not None and quality.logged_names and quality != read_as:
        readings, told = _read_files(files, name, known, reader)
    for problem in told:
        problems.take(problem)
    if name and known and old_format is None:
        rounds = possible or definitions.rounds_of([name])
        note_unnamed_round(files[0].path, known, rounds, problems)
    for violation in check_same_logs([reading.run for reading in readings]):
        problems.violate(violation, file=None)
    return [judge_run(reading, known, problems) for reading in readings], known


def _read_files(
    files: Sequence[ArchiveFile], name: str | None, benchmark: Benchmark | None, reader: Reader
) -> tuple[list[Reading], Problems]:
    """Read every log as one of a benchmark. Return the readings and the problems."""
    problems = Problems()
    names = names_of(name, benchmark) if name else reader.definitions.mlperf_names()
    allowed = {"submission_benchmark": names, "submission_division": DIVISIONS}
    readings = []
    for file in files:
        readings.append(
            read_run(
                file,
                reader.archive,
                target=reader.definitions.quality_in_logs(name, benchmark),
                allowed=allowed,
                problems=problems,
            )
        )
        add_copies(file, reader.identical or {}, problems)
    return readings, problems


def _figures(
    runs: Sequence[PublishedRun],
    benchmark: Benchmark | None,
    path: str,
    reader: Reader,
    problems: Problems,
    *,
    name: str | None = None,
    alone: bool = False,
) -> dict[str, Any]:
    times = [run.tta_seconds for run in runs]
    converged = [seconds for seconds in times if seconds is not None]
    name = name or next((run.run.benchmark for run in runs if run.run.benchmark), None)
    rule = benchmark.runs if benchmark else general_runs(name or "")
    places = scored_places(times, rule)
    division = _common([run.run.division for run in runs])
    olympic = _olympic_mean([times[place] for place in places], rule)
    verdict = _convergence(
        [runs[place] for place in places], benchmark, division, path, reader.pruned, problems
    )
    add_set_problems(runs, benchmark, rule, olympic, path, problems, alone=alone)
    record: dict[str, Any] = dict.fromkeys(KEYS)
    return record | {
        "path": path,
        "benchmark": name,
        "division": division,
        "runs": [run.record() for run in runs],
        "n_runs": len(runs),
        "olympic_mean_seconds": olympic,
        "normalised_seconds": _normalised(olympic, verdict),
        "rcp": verdict and _rcp_record(verdict),
        "cv_percent": coefficient_of_variation_percent(converged),
        "cv_all_percent": coefficient_of_variation_percent(
            [run.run.stop_seconds for run in runs if run.run.stop_seconds is not None]
        ),
        "runs_started": len(runs),
        "runs_reached": len(converged),
        "reached_fraction": len(converged) / len(runs),
        "global_batch_size": _common([run.run.batch_size for run in runs]),
        "version": benchmark.version if benchmark else runs[0].version,
        "scored_runs": [runs[place].run.name.rpartition("/")[2] for place in places],
        "definition": benchmark and {"id": benchmark.benchmark_id, "sha256": benchmark.sha256},
    }


def _convergence(
    runs: Sequence[PublishedRun],
    benchmark: Benchmark | None,
    division: str | None,
    path: str,
    pruned: bool,
    problems: Problems,
) -> RcpVerdict | None:
    """The verdict on the convergence of the runs that make the result.

    A run that did not converge has no say in the batch size: its log may end before it tells.
    """
    if benchmark is None or not any(run.converged for run in runs):
        return None
    sizes = {run.run.batch_size for run in runs if run.converged}
    batch_size = sizes.pop() if len(sizes) == 1 else None
    judged = [_with_batch_size(run, batch_size) for run in runs]
    try:
        verdict, violations = check_set(
            judged,
            [run.convergence for run in runs],
            benchmark,
            division=division or "",
            pruned=pruned,
        )
    except RuleError as error:
        error.file = path
        problems.report(error)
        return None
    for violation in violations:
        problems.violate(violation, file=path)
    return verdict


def _with_batch_size(run: PublishedRun, batch_size: int | None) -> Run:
    return run.run if run.converged else replace(run.run, batch_size=batch_size)


def _olympic_mean(times: Sequence[float | None], rule: RunsRule) -> float | None:
    return olympic_mean(times, dropped=rule.dropped) if len(times) > 2 * rule.dropped else None


def _normalised(olympic: float | None, verdict: RcpVerdict | None) -> float | None:
    if olympic is None or verdict is None:
        return olympic
    return olympic * verdict.applied_factor


def _rcp_record(verdict: RcpVerdict) -> dict[str, Any]:
    fields = dict(vars(verdict))
    return {name: fields.pop(name) for name in RCP_KEYS} | fields


RCP_KEYS = ("verdict", "message", "factor", "batch_size", "mean", "lowest")


def _common(values: Sequence[Any]) -> Any:
    """The one value that all runs with a value share, or None."""
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else None


def _called(division: str | None) -> str | None:
    return division_called(division) if division else None


def _organisation(found: ResultSet, version: str | None) -> str:
    """The folder above `results`; in v0.5 the one below the version, with others in between."""
    above = found.place[:-3]
    if version == "0.5":
        for i in range(len(above) - 1, 0, -1):
            if above[i - 1].startswith("v0.5"):
                return above[i]
    return above[-1]


def _finished(record: dict[str, Any], problems: Problems) -> dict[str, Any]:
    record["problems"] = [dict(vars(problem)) for problem in problems]
    record["eligible"] = record["olympic_mean_seconds"] is not None and not problems.has_error
    return record
