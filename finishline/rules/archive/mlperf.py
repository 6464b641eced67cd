"""The record of an MLPerf result set: every figure it was published with, from its own logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from finishline.rules.archive.agreement import (
    check_agreement,
    check_scaling,
    division_called,
    read_description,
    read_scaling,
)
from finishline.rules.archive.definitions import (
    Definitions,
    names_of,
    possible_rounds,
)
from finishline.rules.archive.files import Archive, ArchiveFile, Place, shown, version_of
from finishline.rules.archive.mlperf_runs import (
    add_run_oddities,
    day_of,
    published_run,
    read_run,
    run_record,
    stand_in,
)
from finishline.rules.archive.problems import Problems
from finishline.rules.archive.set_problems import (
    add_copies,
    add_odd_names,
    add_set_problems,
    note_undefined,
    note_unnamed_round,
)
from finishline.rules.archive.submissions import HPC_BENCHMARKS, ResultSet, SingleLog
from finishline.rules.benchmarks.benchmark import DIVISIONS, Benchmark, round_of_day
from finishline.rules.logs.mllog import Reading
from finishline.rules.run import Run
from finishline.rules.scoring.convergence import RcpVerdict
from finishline.rules.scoring.scoring import score, scored_places
from finishline.rules.statistics.aggregate import coefficient_of_variation_percent
from finishline.rules.submissions.claim_checks import check_published_run, check_same_logs

KEYS = (
    "path", "organisation", "system", "benchmark", "division", "runs", "n_runs",
    "olympic_mean_seconds", "normalised_seconds", "rcp", "cv_percent", "reached_fraction",
    "global_batch_size", "problems", "eligible", "cv_all_percent", "version", "scored_runs",
    "scaling_json", "suite", "scaling", "description", "definition", "runs_started", "runs_reached",
)  # fmt: skip


HPC = "MLPerf HPC"


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
    if found.is_hpc:
        return _describe_hpc(found, reader)
    problems = Problems()
    name = shown(found.place[-1]) if found.in_package else None
    logs = _read_logs(found.runs, name, possible_rounds(found, reader.rounds), reader, problems)
    description = None
    if found.in_package:
        description = read_description(found, reader.archive, logs.version, problems)
    said = description.division if description is not None else None
    division = logs.division or _called(said)
    factor = read_scaling(found, reader.archive, problems)
    record = _figures(logs, division, found.path, reader, problems, factor=factor)
    if logs.name in HPC_BENCHMARKS:
        return _not_scored(record, None)
    if found.in_package:
        record["organisation"] = shown(_organisation(found, logs.version))
        record["system"] = shown(found.place[-2])
        record["description"] = description and dict(description.fields)
        check_agreement(record, logs.runs, description, problems)
        add_odd_names(found.runs, problems)
    check_scaling(record, found, problems)
    return _finished(record, problems)


def _describe_hpc(found: ResultSet, reader: Reader) -> dict[str, Any]:
    """The record of a set of MLPerf HPC, which is named and not scored."""
    *organisation, _, system = found.system_place
    name, version = shown(found.place[-1]), version_of(tuple(organisation))
    logs = _read_logs(found.runs, name, (), reader, Problems())
    description = read_description(found, reader.archive, version, Problems())
    said = description.division if description is not None else None
    division = logs.division or _called(said)
    record = _figures(logs, division, found.path, reader, Problems())
    record |= {
        "version": version,
        "organisation": shown(organisation[-1]),
        "system": shown(system),
        "description": dict(description.fields) if description is not None else None,
    }
    return _not_scored(record, found.scaling)


def _not_scored(record: dict[str, Any], scaling: str | None) -> dict[str, Any]:
    unscored = ("olympic_mean_seconds", "normalised_seconds", "rcp", "cv_percent", "cv_all_percent")
    record |= dict.fromkeys(unscored) | {"scored_runs": [], "suite": HPC, "scaling": scaling}
    problems = Problems()
    problems.add(
        "hpc_not_scored",
        f"{HPC} is not scored" + (f" ({scaling} scaling)" if scaling else ""),
        file=record["path"],
        expected="a set of MLPerf Training, ORG/results/SYSTEM/BENCHMARK",
        severity="warning",
    )
    return _finished(record, problems)


def score_log(found: SingleLog, reader: Reader) -> dict[str, Any]:
    """The record of a log outside any package, as a set of one run."""
    folder = ResultSet(found.path, found.file.place[:-1], [found.file])
    if folder.is_hpc:
        return _describe_hpc(folder, reader)
    problems = Problems()
    named = version_of(folder.place)
    possible = () if named is None else (named,)
    logs = _read_logs([found.file], None, possible, reader, problems, alone=True)
    record = _figures(logs, logs.division, found.path, reader, problems, alone=True)
    record["organisation"] = logs.runs[0].organisation
    record["system"] = logs.runs[0].platform
    if logs.name in HPC_BENCHMARKS:
        return _not_scored(record, None)
    return _finished(record, problems)


@dataclass(frozen=True)
class Logs:
    """The logs of a set, and the definition they are judged by, None where there is none."""

    readings: list[Reading]
    benchmark: Benchmark | None
    name: str | None
    version: str | None

    @property
    def runs(self) -> list[Run]:
        """The runs as their logs have them."""
        return [reading.run for reading in self.readings]

    @property
    def division(self) -> str | None:
        """The one division that the logs name."""
        divisions = {run.division for run in self.runs if run.division is not None}
        return divisions.pop() if len(divisions) == 1 else None


def _read_logs(
    files: Sequence[ArchiveFile],
    name: str | None,
    possible: tuple[str, ...],
    reader: Reader,
    problems: Problems,
    *,
    alone: bool = False,
) -> Logs:
    """The logs of a set, and the definition they are judged by.

    Of `possible` rounds it is the first that was published after the logs were written. The name
    comes from the path; outside a package from the first log that says.
    """
    definitions = reader.definitions
    day = day_of(files[0], reader.archive) if files and len(possible) != 1 else None
    version = round_of_day(possible, day) if possible else None
    benchmark = definitions.of_mlperf(name, version) if name else None
    read_as = definitions.quality_in_logs(name, benchmark)
    readings, told = _read_files(files, name, benchmark, reader, alone=alone)
    old_format = next((reading.version for reading in readings if reading.version), None)
    version = old_format or version
    name = name or next((r.run.benchmark for r in readings if r.run.benchmark), None)
    if name and version is None and (rounds := definitions.rounds_of([name])):
        version = round_of_day(rounds, day)
    known = definitions.of_mlperf(name, version) if name else None
    quality = definitions.quality_in_logs(name, known)
    if quality is not None and quality.logged_names and quality != read_as:
        readings, told = _read_files(files, name, known, reader, alone=alone)
    for problem in told:
        problems.take(problem)
    if name and known and old_format is None:
        rounds = possible or definitions.rounds_of([name])
        note_unnamed_round(files[0].path, known, rounds, problems)
    return Logs(readings, known, name, known.version if known else version)


def _read_files(
    files: Sequence[ArchiveFile],
    name: str | None,
    benchmark: Benchmark | None,
    reader: Reader,
    *,
    alone: bool,
) -> tuple[list[Reading], Problems]:
    """Read every log as one of a benchmark. Return the readings and the problems."""
    problems = Problems()
    known = (*reader.definitions.mlperf_names(), *HPC_BENCHMARKS)
    names = names_of(name, benchmark) if name else known
    allowed = {"submission_benchmark": names, "submission_division": DIVISIONS}
    readings = []
    for file in files:
        readings.append(
            read_run(
                file,
                reader.archive,
                target=reader.definitions.quality_in_logs(name, benchmark),
                allowed=allowed,
                alone=alone,
                problems=problems,
            )
        )
        add_copies(file, reader.identical or {}, problems)
    return readings, problems


def _figures(
    logs: Logs,
    division: str | None,
    path: str,
    reader: Reader,
    problems: Problems,
    *,
    factor: float | None = None,
    alone: bool = False,
) -> dict[str, Any]:
    """The figures of a set by the rules of any other result; `factor` is of its scaling.json."""
    known, readings = logs.benchmark, logs.readings
    benchmark = known or stand_in(logs.name, readings)
    runs = [published_run(reading, known) for reading in readings]
    judged_by = division or "open"
    result = score(
        runs,
        benchmark,
        division=judged_by,
        price_usd_per_hour=None,
        pruned=reader.pruned,
        with_interval=False,
        archive=True,
        scaling_factor=factor,
    )
    if known is None:
        note_undefined(path, logs.name, logs.version, problems)
    else:
        for run in runs:
            for violation in check_published_run(run, known):
                problems.violate(violation, file=run.name)
    for violation in check_same_logs(runs):
        problems.violate(violation, file=None)
    for reading, run in zip(readings, runs, strict=True):
        add_run_oddities(reading, run, benchmark, judged_by, problems)
    add_set_problems(readings, result, benchmark, path, problems, alone=alone)
    stopped = [run.stop_seconds for run in runs if run.stop_seconds is not None]
    sizes = {run.batch_size for run in runs if run.batch_size is not None}
    places = scored_places([run.tta_seconds for run in result.runs], benchmark.runs)
    record: dict[str, Any] = dict.fromkeys(KEYS)
    return record | {
        "path": path,
        "benchmark": logs.name,
        "division": division,
        "runs": [run_record(*each) for each in zip(readings, result.runs, strict=True)],
        "n_runs": len(runs),
        "olympic_mean_seconds": result.raw_tta_seconds,
        "normalised_seconds": result.tta_seconds,
        "rcp": result.rcp and _rcp_record(result.rcp),
        "cv_percent": result.cv_percent,
        "cv_all_percent": coefficient_of_variation_percent(stopped),
        "runs_started": result.started,
        "runs_reached": result.reached,
        "reached_fraction": result.reached / result.started,
        "global_batch_size": sizes.pop() if len(sizes) == 1 else None,
        "version": logs.version,
        "scored_runs": [runs[place].name.rpartition("/")[2] for place in places],
        "scaling_json": factor,
        "definition": known and {"id": known.benchmark_id, "sha256": known.sha256},
    }


def _rcp_record(verdict: RcpVerdict) -> dict[str, Any]:
    fields = dict(vars(verdict))
    return {name: fields.pop(name) for name in RCP_KEYS} | fields


RCP_KEYS = ("verdict", "message", "factor", "batch_size", "mean", "lowest")


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
