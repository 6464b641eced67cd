"""Score an archive's submissions: each published figure, from their logs."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, NamedTuple

from finishline.rules.archive.agreement import (
    check_agreement,
    check_scaling,
    division_of,
    read_description,
    read_scaling,
)
from finishline.rules.archive.dawnbench import score_entry
from finishline.rules.archive.definitions import (
    Definitions,
    general_runs,
    names_of,
    possible_rounds,
    tell_rounds,
)
from finishline.rules.archive.files import (
    Archive,
    ArchiveFile,
    Problems,
    Severity,
    find_identical,
    shown,
    version_of,
)
from finishline.rules.archive.find import (
    HPC_BENCHMARKS,
    RESULT_NAME,
    EntryFiles,
    ResultSet,
    Submission,
    find_submissions,
)
from finishline.rules.benchmarks.benchmark import DIVISIONS, Benchmark, round_of_day
from finishline.rules.benchmarks.definition_tables import DataSet, ReachRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import LogFormatError, RuleError, StatisticsMissingError
from finishline.rules.logs.lines import MLLOG, format_of
from finishline.rules.logs.mllog import Reading, read_log
from finishline.rules.logs.text import is_placeholder, refuse_other_content
from finishline.rules.run import INIT_ALLOWANCE_SECONDS, Clock, Run
from finishline.rules.scoring.scoring import Result, RunScore, score, scored_places
from finishline.rules.scoring.tta import excess_preparation_seconds, first_evaluation_at_target
from finishline.rules.scoring.violations import find_repeated_seeds, find_seedless
from finishline.rules.statistics.aggregate import coefficient_of_variation_percent
from finishline.rules.submissions.claim_checks import check_published_run, check_same_logs
from finishline.rules.text import count_text

Record = dict[str, Any]
KEYS = (
    "path", "organisation", "system", "benchmark", "division", "runs", "n_runs",
    "olympic_mean_seconds", "normalised_seconds", "rcp", "cv_percent", "reached_fraction",
    "global_batch_size", "problems", "eligible", "cv_all_percent", "version", "scored_runs",
    "scaling_json", "suite", "scaling", "description", "definition", "runs_started", "runs_reached",
)  # fmt: skip
HPC = "MLPerf HPC"
UNSCORED = ("olympic_mean_seconds", "normalised_seconds", "rcp", "cv_percent", "cv_all_percent")
# Times of MLPerf logs are milliseconds, of 13 digits since 2001.
FIRST_TIME = re.compile(rb'"time_ms": ?(\d{10})\d{3}\b')
HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Found:
    """The submissions of one archive, and the copies of each log by its path."""

    submissions: list[Submission]
    archive: Archive
    identical: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Reader:
    """Options for reading submissions. `pruned` compares with the pruned reference points."""

    def __init__(
        self, found: Found, benchmarks: Mapping[str, Benchmark], *, pruned: bool = True
    ) -> None:
        self.archive, self.identical = found.archive, found.identical
        self.definitions = Definitions(benchmarks)
        self.pruned = pruned
        self.rounds = tell_rounds(found.submissions, self.definitions)


def find_scorable(archive: Archive, *, asked_for_file: bool = False) -> Found:
    """Find the submissions of an archive, and their logs that are byte for byte the same."""
    submissions = find_submissions(archive, asked_for_file=asked_for_file)
    sets = [each for each in submissions if isinstance(each, ResultSet) and not each.alone]
    return Found(submissions, archive, find_identical(archive, (f for s in sets for f in s.runs)))


def score_found(
    found: Found, benchmarks: Mapping[str, Benchmark], *, pruned: bool = True
) -> Iterator[Record]:
    """Yield the record of every submission, in order of their paths."""
    reader = Reader(found, benchmarks, pruned=pruned)
    for submission in found.submissions:
        try:
            record = score_submission(submission, reader)
        except StatisticsMissingError:
            raise
        except Exception as error:  # noqa: BLE001 - our fault must not hide other records
            problems = Problems()
            message = f"this submission could not be scored ({type(error).__name__})"
            problems.add("internal_error", f"{message}; please report it", submission.path)
            record = {"path": submission.path, "eligible": False, "problems": problems.records}
        yield record


def score_submission(found: Submission, reader: Reader) -> Record:
    """Score one submission into a record. `problems` lists its faults."""
    if isinstance(found, EntryFiles):
        return score_entry(found, reader.archive, reader.definitions)
    problems = Problems()
    logs = _read_logs(found, reader, problems)
    version = version_of(found.system_place[:-2]) if found.is_hpc else logs.version
    record: Record = dict.fromkeys(KEYS) | {"path": found.path, "version": version}
    description = None
    if found.in_package or found.is_hpc:
        description = read_description(found, reader.archive, version, problems)
        record["organisation"] = shown(_organisation(found, version))
        record["system"] = shown(found.system_place[-1])
        record["description"] = description and dict(description.fields)
    elif found.alone:
        record["organisation"] = logs.readings[0].run.organisation
        record["system"] = logs.readings[0].run.platform
    runs = [reading.run for reading in logs.readings]
    divisions = {run.division for run in runs if run.division is not None}
    described = description and division_of(description)
    record["division"] = divisions.pop() if len(divisions) == 1 else described
    if not found.alone and not found.is_hpc:
        record["scaling_json"] = read_scaling(found, reader.archive, problems)
    _add_figures(record, found, logs, reader, problems)
    hpc = found.is_hpc or (not found.in_package and logs.name in HPC_BENCHMARKS)
    if hpc:
        record |= dict.fromkeys(UNSCORED) | {"scored_runs": [], "suite": HPC}
        record["scaling"], problems = found.scaling, Problems()
        message = f"{HPC} is not scored" + (f" ({found.scaling} scaling)" if found.scaling else "")
        expected = "a set of MLPerf Training, ORG/results/SYSTEM/BENCHMARK"
        problems.warn("hpc_not_scored", message, found.path, expected=expected)
    elif found.in_package:
        check_agreement(record, runs, description, problems)
        for file in found.runs:
            if not RESULT_NAME.fullmatch(file.name):
                message = "a log among the results without a result's name"
                expected = "result_0.txt, result_1.txt ..."
                problems.warn("odd_name", message, file.path, expected=expected)
    if not found.alone and not hpc:
        check_scaling(record, found, problems)
    record["problems"] = problems.records
    record["eligible"] = record["olympic_mean_seconds"] is not None and not problems.has_error
    return record


def _organisation(found: ResultSet, version: str | None) -> str:
    """Return the folder above `results`. In v0.5 the folder below the version, further up."""
    above = found.system_place[:-2]
    if version == "0.5":
        below = [i + 1 for i, folder in enumerate(above[:-1]) if folder.startswith("v0.5")]
        return above[below[-1] if below else -1]
    return above[-1]


class Logs(NamedTuple):
    """The logs of a set, and its definition, if it has one."""

    readings: list[Reading]
    benchmark: Benchmark | None
    name: str | None
    version: str | None


def _read_logs(found: ResultSet, reader: Reader, problems: Problems) -> Logs:
    """Read the logs of a set, and find its definition.

    It is of the first possible round after the logs. Outside a package a log names it.
    """
    in_package = found.in_package or found.is_hpc
    name = shown(found.place[-1]) if in_package else None
    possible = () if found.is_hpc else possible_rounds(found, reader.rounds)
    definitions = reader.definitions
    day = _day_of(found.runs[0], reader.archive) if len(possible) != 1 else None
    version = round_of_day(possible, day) if possible else None
    benchmark = definitions.of_mlperf(name, version) if name else None
    read_as = definitions.quality_in_logs(name, benchmark)
    readings, told = _read_files(found, name, benchmark, reader)
    old_format = next((reading.version for reading in readings if reading.version), None)
    version = old_format or version
    name = name or next((r.run.benchmark for r in readings if r.run.benchmark), None)
    rounds = definitions.rounds_of([name]) if name else ()
    if version is None and rounds:
        version = round_of_day(rounds, day)
    known = definitions.of_mlperf(name, version) if name else None
    quality = definitions.quality_in_logs(name, known)
    if quality is not None and quality.logged_names and quality != read_as:
        readings, told = _read_files(found, name, known, reader)
    for problem in told:
        problems.add(**vars(problem))
    if known and old_format is None and len(possible or rounds) > 1:
        message = f"neither a folder nor the logs name the round; scored as v{known.version}"
        either = " or ".join(f"v{each}" for each in possible or rounds)
        expected = f"a folder named after it: {either}"
        problems.warn("round_not_told", message, found.runs[0].path, "version", expected)
    return Logs(readings, known, name, known.version if known else version)


def _day_of(file: ArchiveFile, archive: Archive) -> date | None:
    with suppress(LogFormatError):
        if found := FIRST_TIME.search(next(archive.chunks(file, size=HEAD_BYTES), b"")):
            return datetime.fromtimestamp(int(found[1]), UTC).date()
    return None


def _read_files(
    found: ResultSet, name: str | None, benchmark: Benchmark | None, reader: Reader
) -> tuple[list[Reading], Problems]:
    """Read every log as a run of a benchmark. In a set a sentence may replace a log."""
    problems = Problems()
    known = (*reader.definitions.mlperf_names(), *HPC_BENCHMARKS)
    names = names_of(name, benchmark) if name else known
    allowed = {"submission_benchmark": names, "submission_division": DIVISIONS}
    target = reader.definitions.quality_in_logs(name, benchmark)
    readings = []
    for file in found.runs:
        try:
            chunks = reader.archive.chunks(file)
            first = next(chunks, b"")
            refuse_other_content(first, name=file.path)
            if not found.alone and is_placeholder(first):
                words = " ".join(first.decode("utf-8-sig").split())
                message = f"no log but {words[:80]!r}: the run counts as slower than all others"
                expected = "the log of a run, or a run that the rule drops"
                problems.warn("placeholder", message, file.path, expected=expected)
                reading = Reading(Run(file.path, "mlperf", ()), placeholder=True)
            else:
                reading = read_log(
                    itertools.chain((first,), chunks),
                    format_of(first) or MLLOG,
                    name=file.path,
                    allowed=allowed,
                    report=problems.report,
                    odd=partial(problems.report, severity="warning"),
                    target=target,
                    every_line=False,
                )
        except RuleError as error:
            problems.report(error)
            reading = Reading(Run(file.path, "mlperf", ()))
        readings.append(reading)
        if others := reader.identical.get(file.path):
            more = f" and {len(others) - 1} more" if len(others) > 1 else ""
            message = f"byte for byte the same as {others[0]}{more}"
            expected = "a separate log for every run"
            problems.warn("identical_log", message, file.path, expected=expected)
    return readings, problems


def _add_figures(
    record: Record, found: ResultSet, logs: Logs, reader: Reader, problems: Problems
) -> None:
    known, readings = logs.benchmark, logs.readings
    benchmark = known or _stand_in(logs)
    runs = [_published_run(reading, known) for reading in readings]
    division = record["division"] or "open"
    result = score(
        runs,
        benchmark,
        division=division,
        price_usd_per_hour=None,
        pruned=reader.pruned,
        with_interval=False,
        archive=True,
        scaling_factor=record["scaling_json"],
    )
    stopped = [run.stop_seconds for run in runs if run.stop_seconds is not None]
    sizes = {run.batch_size for run in runs if run.batch_size is not None}
    places = scored_places([run.tta_seconds for run in result.runs], benchmark.runs)
    record |= {
        "benchmark": logs.name,
        "runs": [_run_record(*each) for each in zip(readings, result.runs, strict=True)],
        "n_runs": len(runs),
        "olympic_mean_seconds": result.raw_tta_seconds,
        "normalised_seconds": result.tta_seconds,
        "rcp": result.rcp and dict(vars(result.rcp)),
        "cv_percent": result.cv_percent,
        "cv_all_percent": coefficient_of_variation_percent(stopped),
        "runs_started": result.started,
        "runs_reached": result.reached,
        "reached_fraction": result.reached / result.started,
        "global_batch_size": sizes.pop() if len(sizes) == 1 else None,
        "scored_runs": [runs[place].name.rpartition("/")[2] for place in places],
        "definition": known and {"id": known.benchmark_id, "sha256": known.sha256},
    }
    if known is None:
        parts = ("mlperf", logs.version and f"v{logs.version}")
        named = " ".join(filter(None, (*parts, logs.name or "benchmark of unknown name")))
        message = f"{named} has no definition: the target is not checked"
        expected = "a benchmark definition (--benchmarks)"
        problems.warn("unknown_benchmark", message, found.path, "benchmark", expected)
    else:
        for run in runs:
            for violation in check_published_run(run, known):
                problems.violate(violation, file=run.name)
    for violation in check_same_logs(runs):
        problems.violate(violation)
    for reading, run in zip(readings, runs, strict=True):
        if not reading.placeholder:
            _add_run_oddities(reading, run, benchmark, division, problems)
    _add_set_problems(found, readings, result, benchmark, problems)


def _stand_in(logs: Logs) -> Benchmark:
    """Define an unknown benchmark: a run that says success reached its target."""
    name = logs.name or ""
    evaluated = [reading.run.evaluations for reading in logs.readings if reading.run.evaluations]
    by_samples = any(evaluations[-1].epoch is None for evaluations in evaluated)
    return Benchmark(
        benchmark_id=f"mlperf-{name or 'benchmark'}",
        title=name,
        version="",
        task="",
        about="",
        data_set=DataSet("", "", None, None, None),
        target=QualityTarget("quality", -math.inf, "score", "higher"),
        reach=ReachRule("first_crossing"),
        clock=Clock("mlperf"),
        runs=general_runs(name),
        divisions=DIVISIONS,
        log_names=(),
        hyperparameters={},
        replay=None,
        reference_runs=(),
        sha256="",
        convergence_unit="samples_count" if by_samples else "epoch_num",
    )


def _published_run(reading: Reading, benchmark: Benchmark | None) -> Run:
    """Return the run of a log, with status "success" exactly if it may have converged by its log.

    A v0.5 log may omit the status. Then the run converged if it reached the target and did not
    fail. Preparation is free where the definition is missing.
    Source: MLPerf training_rules.adoc, "Benchmark results".
    """
    run = reading.run
    status = run.status
    if status is None and reading.version == "0.5" and benchmark is not None and run.evaluations:
        target, reach = benchmark.target, benchmark.reach
        if first_evaluation_at_target(run.evaluations, target, reach) is not None:
            status = "success"
    if not reading.trusted or run.stop_seconds is None or status != "success":
        status = "not converged"
    preparation = None if benchmark is None else run.preparation_seconds
    if (status, preparation) == (run.status, run.preparation_seconds):
        return run
    return replace(run, status=status, preparation_seconds=preparation)


def _run_record(reading: Reading, scored: RunScore) -> Record:
    run = reading.run
    return {
        "file": run.name.rpartition("/")[2],
        "tta_seconds": scored.tta_seconds,
        "converged": scored.reached,
        "convergence": scored.convergence,
        "seeds": list(run.seeds),
        "status": run.status,
        "stop_seconds": run.stop_seconds,
        "final_quality": run.evaluations[-1].quality if run.evaluations else None,
        "evaluations": len(run.evaluations),
    }


def _add_run_oddities(
    reading: Reading, run: Run, benchmark: Benchmark, division: str, problems: Problems
) -> None:
    if not run.evaluations:
        message = "no evaluation in the log: the run did not converge"
        expected = "an evaluation that reaches the target"
        problems.warn("no_evaluation", message, run.name, "eval_accuracy", expected)
    if reading.trusted and run.status != "success":
        said = "has no status" if reading.run.status is None else f"says {reading.run.status}"
        ended = f"run_stop {said}: the run did not converge"
        if run.stop_seconds is None:
            ended = "no run_stop: the run did not finish"
        message = f"{ended}, and counts as slower than all others"
        expected = "a run_stop with success"
        problems.warn("not_converged", message, run.name, "run_stop", expected)
    excess = excess_preparation_seconds(run, benchmark.clock, division)
    if excess > 0:
        message = f"initialisation took {excess:.1f} s too long; they count in the result"
        expected = f"at most {INIT_ALLOWANCE_SECONDS[division] / 60:g} minutes"
        problems.warn("long_preparation", message, run.name, "init_start", expected)


def _add_set_problems(
    found: ResultSet,
    readings: Sequence[Reading],
    result: Result,
    benchmark: Benchmark,
    problems: Problems,
) -> None:
    rule = benchmark.runs
    for violation in result.violations:
        # A run that lacks evaluations has its own remark.
        if violation.code != "no_evaluation":
            few = found.alone and violation.code == "too_few_runs"
            severity: Severity = "warning" if few else "error"
            problems.violate(violation, file=found.path, severity=severity)
    if result.raw_tta_seconds is None and result.started >= rule.wanted:
        missed = result.started - result.reached
        message = f"{missed} of {count_text(result.started, 'run')} did not converge"
        expected = f"at most {rule.dropped} that did not"
        problems.add("too_few_converged", message, found.path, expected=expected)
    runs = [reading.run for reading in readings if not reading.placeholder]
    for violation in (*find_seedless(runs), *find_repeated_seeds(runs, benchmark)[1]):
        problems.violate(violation, severity="warning")
