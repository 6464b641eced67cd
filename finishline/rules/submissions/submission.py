"""Score a whole submission from its bytes, for the server and `finishline check`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import stated_price_usd_per_hour
from finishline.rules.errors import ClaimError, LogFormatError, RuleError, joined
from finishline.rules.logs import UNPACKED, check_file_name, parse_run_log, unpacked_name
from finishline.rules.logs.dawnbench import METRICS, DawnbenchEntry, parse_entry
from finishline.rules.run import Run
from finishline.rules.scoring.latency import InferenceResult, score_inference
from finishline.rules.scoring.scoring import Result, RunScore, score
from finishline.rules.scoring.violations import Violation
from finishline.rules.submissions.claim import (
    MAX_ORGANISATION_LENGTH,
    Claim,
    Kind,
    System,
    read_claim,
    read_json_object,
)
from finishline.rules.submissions.claim_checks import (
    check_claim,
    check_figures,
    check_headers,
    check_published_run,
    check_same_logs,
    check_times,
)
from finishline.rules.text import did_you_mean, shown


@dataclass(frozen=True)
class ScoredSubmission:
    """A parsed and scored submission: its claim, its runs in order (if any), and its result."""

    claim: Claim
    runs: tuple[Run, ...]
    result: Result | InferenceResult

    @property
    def scored_runs(self) -> list[tuple[Run, RunScore]]:
        if isinstance(self.result, InferenceResult):
            return []
        return list(zip(self.runs, self.result.runs, strict=True))


def score_submission(
    claim_json: bytes,
    logs: Mapping[str, bytes],
    benchmarks: Mapping[str, Benchmark],
    *,
    file: str = "submission.json",
    benchmark_id: str | None = None,
    division: str | None = None,
    archive: bool = False,
) -> ScoredSubmission:
    """Read, check and score a submission. Raises a RuleError that lists every problem.

    `claim_json` is Finishline's own JSON or a DAWNBench entry, which needs a `benchmark_id`. `logs`
    holds exactly the run logs by file name. An inference entry has none.

    Broken rules of an `archive` are violations of its result, which is then unranked. There a run
    may end before its first evaluation: it did not reach the target. Unreadable input is refused
    all the same.
    """
    if is_dawnbench(claim_json, file=file):
        claim, entry = _read_dawnbench(
            claim_json,
            tuple(logs),
            benchmarks,
            file=file,
            benchmark_id=benchmark_id,
            division=division,
            archive=archive,
        )
        if claim.kind == "inference":
            result = score_inference(entry, benchmarks[claim.benchmark_id])
            return ScoredSubmission(claim=claim, runs=(), result=result)
    else:
        claim = read_claim(claim_json, file=file, benchmarks=benchmarks, archive=archive)
        for field, given, said in (
            ("benchmark", benchmark_id, claim.benchmark_id),
            ("division", division, claim.division),
        ):
            if given is not None and given != said:
                message = f"{shown(said)}, but {shown(given)} was given beside it"
                expected = f"{shown(given)} in both places or in one"
                raise ClaimError(message, file=file, field=field, expected=expected)
    benchmark = benchmarks[claim.benchmark_id]
    _check_files(claim, logs, file=file)
    runs = _parse_runs(claim, logs, benchmark, archive=archive)
    if not archive:  # First of all, because other checks need possible figures.
        _refuse([found for run in runs for found in check_figures(run, benchmark)], file=file)
    scored = score(
        runs,
        benchmark,
        division=claim.division,
        price_usd_per_hour=stated_price_usd_per_hour(vars(claim.system)),
        archive=archive,
        scaling_factor=claim.scaling_factor,
    )
    violations = [*scored.violations, *check_headers(claim, runs, benchmark)]
    # Results published elsewhere are checked as a whole package (rules.archive).
    if archive:
        violations += check_same_logs(runs)
        violations += [found for run in runs for found in check_published_run(run, benchmark)]
    else:
        violations += check_claim(claim, runs, benchmark)
        violations += check_times(runs, scored.runs, benchmark)
        _refuse(violations, file=file)
    return ScoredSubmission(claim, runs, replace(scored, violations=tuple(violations)))


def is_dawnbench(claim_json: bytes, *, file: str) -> bool:
    """Whether a JSON is a DAWNBench entry: it names an author and no benchmark."""
    table = read_json_object(claim_json, file=file)
    return "benchmark" not in table and ("author" in table or table.get("version") == "v1.0")


def _read_dawnbench(
    claim_json: bytes,
    log_names: tuple[str, ...],
    benchmarks: Mapping[str, Benchmark],
    *,
    file: str,
    benchmark_id: str | None,
    division: str | None,
    archive: bool,
) -> tuple[Claim, DawnbenchEntry]:
    wrong = partial(ClaimError, file=file)
    division = division or "open"
    benchmark = benchmarks.get(benchmark_id or "")
    if benchmark is None:
        message = "a DAWNBench entry names no benchmark"
        if benchmark_id is not None:
            meant = did_you_mean(benchmark_id, benchmarks)
            message = f"unknown benchmark {benchmark_id[:80]!r}{meant}"
        expected = " or ".join(sorted(benchmarks)) + ", given beside the entry"
        raise wrong(message, field="benchmark", expected=expected)
    if division not in benchmark.divisions:
        expected = " or ".join(benchmark.divisions)
        raise wrong(f"unknown division {division[:80]!r}", field="division", expected=expected)
    kind: Kind = "train" if log_names else "inference"
    metric = None
    if kind == "inference":
        metric = benchmark.target.metric
        if "latency" not in read_json_object(claim_json, file=file):
            expected = (
                "one log file for each run; only an inference entry, with a latency, has none"
            )
            raise wrong("no run logs", field="runs", expected=expected)
        if metric not in METRICS:
            message = f"{benchmark_id} is measured in {metric}, which no DAWNBench entry states"
            expected = "a benchmark measured in " + ", ".join(METRICS)
            raise wrong(message, field="benchmark", expected=expected)
    entry = parse_entry(claim_json, name=file, kind=kind, metric=metric)
    hardware_class = re.sub(r"[^a-z0-9]+", "-", entry.hardware.lower()).strip("-")[:80]
    claim = Claim(
        benchmark_id=benchmark.benchmark_id,
        division=division,
        model=entry.model,
        framework=entry.framework,
        system=System(
            name=entry.hardware,
            hardware_class=hardware_class or "unknown",
            processor=entry.hardware,
            price_usd_per_hour=entry.cost_usd_per_hour,
            price_source="stated in the entry" if entry.cost_usd_per_hour is not None else None,
        ),
        run_files=log_names,
        code_url=entry.code_url,
        notes=f"DAWNBench entry by {entry.author}, {entry.timestamp}",
        dawnbench=asdict(entry),
        organisation=entry.author[:MAX_ORGANISATION_LENGTH] or None if archive else None,
        submitted_on=date.fromisoformat(entry.timestamp) if archive else None,
        kind=kind,
    )
    return claim, entry


def _refuse(violations: Sequence[Violation], *, file: str) -> None:
    problems: list[RuleError] = []
    for violation in violations:
        kind = ClaimError if violation.file is None else LogFormatError
        problems.append(
            kind(
                violation.message,
                file=violation.file or file,
                line=violation.line,
                field=violation.field,
                expected=violation.expected,
                code=violation.code,
            )
        )
    if problems:
        raise joined(problems)


def _check_files(claim: Claim, logs: Mapping[str, bytes], *, file: str) -> None:
    wrong = partial(ClaimError, file=file, field="runs")
    for name in (*claim.run_files, *logs):
        check_file_name(name)
    if not logs:
        raise wrong("no run logs", expected="one log file for each run")
    for name in claim.run_files:
        if name not in logs:
            packed = next((each for each in logs if unpacked_name(each) == name), None)
            message = f"{shown(name)} was not sent" + (f", but {shown(packed)}" if packed else "")
            raise wrong(message, expected=UNPACKED if packed else "every run log that is listed")
    for name in logs:
        if name not in claim.run_files:
            expected = "every run log that is sent"
            raise wrong(f"{shown(name)} was sent but is not listed", expected=expected)


def _parse_runs(
    claim: Claim, logs: Mapping[str, bytes], benchmark: Benchmark, *, archive: bool
) -> tuple[Run, ...]:
    runs, problems = [], []
    for name in claim.run_files:
        try:
            run = parse_run_log(logs[name], name=name, benchmark=benchmark, archive=archive)
            if not run.evaluations and not archive:
                raise LogFormatError(
                    "no evaluation in the log", file=name, expected="at least one evaluation"
                )
            runs.append(run)
        except RuleError as error:
            problems += error.problems
    if problems:
        raise joined(problems)
    return tuple(runs)
