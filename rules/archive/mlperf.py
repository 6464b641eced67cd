"""The record of an MLPerf result set: every figure it was published with, from its own logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rules.aggregate import coefficient_of_variation_percent, olympic_mean
from rules.archive.agreement import check_agreement, read_description, read_scaling
from rules.archive.definitions import Definitions, general_runs, names_of
from rules.archive.files import Archive, ArchiveFile, shown, version_of
from rules.archive.mlperf_runs import PublishedRun, judge_run, read_run
from rules.archive.problems import Problems
from rules.archive.submissions import ResultSet, SingleLog
from rules.benchmark import DIVISIONS, Benchmark, RunsRule
from rules.convergence import RcpVerdict
from rules.errors import RuleError
from rules.normalisation import check_set
from rules.run import Run
from rules.scoring import scored_places

KEYS = (
    "path", "organisation", "system", "benchmark", "division", "runs", "n_runs",
    "olympic_mean_seconds", "normalised_seconds", "rcp", "cv_percent", "reached_fraction",
    "global_batch_size", "problems", "eligible", "cv_all_percent", "version", "scored_runs",
    "scaling_json", "description", "definition",
)  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """How sets are read: by which definitions, and how closely.

    `pruned` holds convergence against the pruned reference points. `every_line` parses the lines
    that no figure needs as well. `identical` names the copies of a log, by path.
    """

    archive: Archive
    definitions: Definitions
    pruned: bool = True
    every_line: bool = False
    identical: Mapping[str, tuple[str, ...]] | None = None


def score_set(found: ResultSet, reader: Reader) -> dict[str, Any]:
    """The record of one result set; its `problems` say what is wrong with it."""
    problems = Problems()
    name = shown(found.place[-1]) if found.in_package else None
    # The folders of systems and benchmarks have versions of their own in their names.
    version = version_of(found.place[:-3] if found.in_package else found.place)
    runs, benchmark = _read_runs(found.runs, name, version, reader, problems)
    record = _figures(runs, benchmark, found.path, reader, problems)
    if found.in_package:
        record["organisation"] = shown(_organisation(found, record["version"]))
        record["system"] = shown(found.place[-2])
        record["benchmark"] = name
        description = read_description(found, reader.archive, record["version"], problems)
        if description is not None:
            record["description"] = dict(description.fields)
            record["division"] = record["division"] or _lower(description.division)
        check_agreement(record, [run.run for run in runs], description, problems)
    read_scaling(found, reader.archive, record, problems)
    return _finished(record, problems)


def score_log(found: SingleLog, reader: Reader) -> dict[str, Any]:
    """The record of a log outside any package, as a set of one run; all of its lines are read."""
    reader = replace(reader, every_line=True)
    problems = Problems()
    version = version_of(found.file.place[:-1])
    runs, benchmark = _read_runs([found.file], None, version, reader, problems)
    record = _figures(runs, benchmark, found.path, reader, problems, alone=True)
    record["organisation"] = runs[0].run.organisation
    record["system"] = runs[0].run.platform
    return _finished(record, problems)


def _read_runs(
    files: Sequence[ArchiveFile],
    name: str | None,
    version: str | None,
    reader: Reader,
    problems: Problems,
) -> tuple[list[PublishedRun], Benchmark | None]:
    """The runs of a set, and the definition they are judged by.

    Its name comes from the path; outside a package from the first log that says.
    """
    definitions = reader.definitions
    benchmark = definitions.of_mlperf(name, version) if name else None
    names = names_of(name, benchmark) if name else definitions.mlperf_names()
    allowed = {"submission_benchmark": names, "submission_division": DIVISIONS}
    readings = []
    for file in files:
        readings.append(
            read_run(
                file,
                reader.archive,
                benchmark=benchmark,
                allowed=allowed,
                every_line=reader.every_line,
                problems=problems,
            )
        )
        _add_copies(file, reader.identical or {}, problems)
    version = next((format_version for _, format_version in readings if format_version), version)
    name = name or next((r.run.benchmark for r, _ in readings if r.run.benchmark), None)
    benchmark = definitions.of_mlperf(name, version) if name else None
    return [judge_run(r, v, benchmark, problems) for r, v in readings], benchmark


def _figures(
    runs: Sequence[PublishedRun],
    benchmark: Benchmark | None,
    path: str,
    reader: Reader,
    problems: Problems,
    *,
    alone: bool = False,
) -> dict[str, Any]:
    times = [run.tta_seconds for run in runs]
    converged = [seconds for seconds in times if seconds is not None]
    name = next((run.run.benchmark for run in runs if run.run.benchmark), None)
    rule = benchmark.runs if benchmark else general_runs(name or "")
    places = scored_places(times, rule)
    division = _common([run.run.division for run in runs])
    olympic = _olympic_mean([times[place] for place in places], rule)
    verdict = _convergence(
        [runs[place] for place in places], benchmark, division, path, reader.pruned, problems
    )
    _add_set_problems(runs, benchmark, rule, olympic, path, problems, alone=alone)
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


def _lower(text: str | None) -> str | None:
    return text.lower() if text else None


def _organisation(found: ResultSet, version: str | None) -> str:
    """The folder above `results`; in v0.5 the one below the version, with others in between."""
    above = found.place[:-3]
    if version == "0.5":
        for i in range(len(above) - 1, 0, -1):
            if above[i - 1].startswith("v0.5"):
                return above[i]
    return above[-1]


def _add_copies(
    file: ArchiveFile, identical: Mapping[str, tuple[str, ...]], problems: Problems
) -> None:
    if others := identical.get(file.path):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        problems.add(
            "identical_log",
            f"byte for byte the same as {others[0]}{more}",
            file=file.path,
            expected="a log of its own for every run",
            severity="warning",
        )


def _add_set_problems(
    runs: Sequence[PublishedRun],
    benchmark: Benchmark | None,
    rule: RunsRule,
    olympic: float | None,
    path: str,
    problems: Problems,
    *,
    alone: bool,
) -> None:
    if benchmark is None:
        problems.add(
            "unknown_benchmark",
            "no definition of this benchmark and version: the target is not checked",
            file=path,
            field="benchmark",
            expected="a benchmark definition (--benchmarks)",
            severity="warning",
        )
    if len(runs) < rule.wanted:
        problems.add(
            "too_few_runs",
            f"{len(runs)} run{'s' * (len(runs) != 1)}",
            file=path,
            expected=f"{rule.wanted} runs",
            severity="warning" if alone else "error",
        )
    elif olympic is None:
        missed = sum(not run.converged for run in runs)
        problems.add(
            "too_few_converged",
            f"{missed} of {len(runs)} runs did not converge",
            file=path,
            expected=f"at most {rule.dropped} that did not",
        )
    _add_seed_problems(runs, problems)


def _add_seed_problems(runs: Sequence[PublishedRun], problems: Problems) -> None:
    by_seed: dict[int, str] = {}
    for run in runs:
        old = run.version == "0.5"
        if not run.seeds and not old:
            problems.add(
                "no_seed", "no seed in the log", file=run.run.name, field="seed", severity="warning"
            )
        for seed in run.seeds:
            if seed in by_seed:
                problems.add(
                    "same_seed",
                    f"seed {seed} is also the seed of {by_seed[seed]}",
                    file=run.run.name,
                    field="seed",
                    expected="a seed of its own for every run",
                    severity="warning" if old else "error",
                )
            by_seed.setdefault(seed, run.run.name.rpartition("/")[2])


def _finished(record: dict[str, Any], problems: Problems) -> dict[str, Any]:
    record["problems"] = [dict(vars(problem)) for problem in problems]
    record["eligible"] = record["olympic_mean_seconds"] is not None and not problems.has_error
    return record
