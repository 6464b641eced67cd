"""A whole submission, from bytes to result: what the server and `finishline check` run."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rules.benchmark import Benchmark
from rules.claim import (
    MAX_ORGANISATION_LENGTH,
    Claim,
    System,
    read_claim,
    read_date,
    read_json_object,
)
from rules.claim_checks import check_claim, check_same_logs
from rules.errors import ClaimError, LogFormatError, RuleError, SubmissionError
from rules.logs import check_file_name, parse_run_log
from rules.logs.dawnbench import parse_entry
from rules.run import Run
from rules.scoring import Result, score
from rules.violations import Violation

# What is wrong in a log rather than in the claim.
LOG_CODES = (
    "division_contradicts_claim",
    "batch_size_contradicts_claim",
    "hyperparameter_contradicts_claim",
    "system_contradicts_claim",
    "accelerators_contradict_claim",
    "platform_differs",
    "batch_size_differs",
    "same_log",
    "epochs_go_back",
    "evaluations_missing",
    "samples_contradict_epochs",
    "time_steps_differ",
)


@dataclass(frozen=True)
class ScoredSubmission:
    """A submission that was read and scored: its claim, its runs in order, its result."""

    claim: Claim
    runs: tuple[Run, ...]
    result: Result


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

    `claim_json` is Finishline's own JSON or a DAWNBench entry, which names no benchmark: then
    `benchmark_id` must. `logs` holds the run logs by file name, and nothing else.

    What was published in an `archive` is not refused for the rules it breaks: they are violations
    of its result, which is then not ranked. A run may end before its first evaluation there: it
    did not reach the target. What cannot be read is refused all the same.
    """
    if is_dawnbench(claim_json, file=file):
        claim = _dawnbench_claim(
            claim_json,
            logs,
            benchmarks,
            file=file,
            benchmark_id=benchmark_id,
            division=division,
            archive=archive,
        )
    else:
        claim = read_claim(claim_json, file=file, benchmarks=benchmarks, archive=archive)
        _refuse_contradiction(claim, file=file, benchmark_id=benchmark_id, division=division)
    benchmark = benchmarks[claim.benchmark_id]
    _check_files(claim, logs, file=file)
    runs = _parse_runs(claim, logs, benchmark, archive=archive)
    result = score(
        runs,
        benchmark,
        division=claim.division,
        price_usd_per_hour=claim.system.price_usd_per_hour,
    )
    violations = (*result.violations, *_contradictions(claim, runs, benchmark))
    # What is published elsewhere is checked for its package as a whole (rules.archive).
    violations += tuple(check_same_logs(runs) if archive else check_claim(claim, runs, benchmark))
    if violations and not archive:
        problems = [_as_error(violation, file) for violation in violations]
        raise SubmissionError(problems) if len(problems) > 1 else problems[0]
    return ScoredSubmission(claim=claim, runs=runs, result=replace(result, violations=violations))


def is_dawnbench(claim_json: bytes, *, file: str) -> bool:
    """Whether a JSON is a DAWNBench entry: it names an author and no benchmark."""
    table = read_json_object(claim_json, file=file)
    return "benchmark" not in table and ("author" in table or table.get("version") == "v1.0")


def _dawnbench_claim(
    claim_json: bytes,
    logs: Mapping[str, bytes],
    benchmarks: Mapping[str, Benchmark],
    *,
    file: str,
    benchmark_id: str | None,
    division: str | None,
    archive: bool,
) -> Claim:
    if benchmark_id is None or benchmark_id not in benchmarks:
        raise ClaimError(
            "a DAWNBench entry names no benchmark"
            if benchmark_id is None
            else f"unknown benchmark {benchmark_id[:80]!r}",
            file=file,
            field="benchmark",
            expected=" or ".join(sorted(benchmarks)) + ", given beside the entry",
        )
    divisions = benchmarks[benchmark_id].divisions
    division = division or "open"
    if division not in divisions:
        raise ClaimError(
            f"unknown division {division[:80]!r}",
            file=file,
            field="division",
            expected=" or ".join(divisions),
        )
    entry = parse_entry(claim_json, name=file)
    return Claim(
        benchmark_id=benchmark_id,
        division=division,
        model=entry.model,
        framework=entry.framework,
        system=System(
            name=entry.hardware,
            hardware_class=_slug(entry.hardware),
            processor=entry.hardware,
            price_usd_per_hour=entry.cost_usd_per_hour,
            price_source="stated in the entry" if entry.cost_usd_per_hour is not None else None,
        ),
        run_files=tuple(logs),
        code_url=entry.code_url,
        notes=f"DAWNBench entry by {entry.author}, {entry.timestamp}",
        dawnbench=asdict(entry),
        organisation=entry.author[:MAX_ORGANISATION_LENGTH] or None if archive else None,
        submitted_on=read_date(entry.timestamp) if archive else None,
    )


def _refuse_contradiction(
    claim: Claim, *, file: str, benchmark_id: str | None, division: str | None
) -> None:
    for name, given, said in (
        ("benchmark", benchmark_id, claim.benchmark_id),
        ("division", division, claim.division),
    ):
        if given is not None and given != said:
            raise ClaimError(
                f"{said!r}, but {given!r} was given beside it",
                file=file,
                field=name,
                expected=f"{given!r} in both places or in one",
            )


def _check_files(claim: Claim, logs: Mapping[str, bytes], *, file: str) -> None:
    for name in (*claim.run_files, *logs):
        check_file_name(name)
    if not logs:
        raise ClaimError(
            "no run logs", file=file, field="runs", expected="one log file for each run"
        )
    for name in claim.run_files:
        if name not in logs:
            raise ClaimError(
                f"{name!r} was not sent",
                file=file,
                field="runs",
                expected="every run log that is listed",
            )
    for name in logs:
        if name not in claim.run_files:
            raise ClaimError(
                f"{name!r} was sent but is not listed",
                file=file,
                field="runs",
                expected="every run log that is sent",
            )


def _parse_runs(
    claim: Claim, logs: Mapping[str, bytes], benchmark: Benchmark, *, archive: bool
) -> tuple[Run, ...]:
    runs, problems = [], []
    for name in claim.run_files:
        try:
            run = parse_run_log(logs[name], name=name, benchmark=benchmark)
            if not run.evaluations and not archive:
                raise LogFormatError(
                    "no evaluation in the log", file=name, expected="at least one evaluation"
                )
            runs.append(run)
        except RuleError as error:
            problems += error.problems
    if problems:
        raise SubmissionError(problems) if len(problems) > 1 else problems[0]
    return tuple(runs)


def _as_error(violation: Violation, file: str) -> RuleError:
    kind = LogFormatError if violation.code in LOG_CODES else ClaimError
    return kind(
        violation.message,
        file=violation.file or file,
        line=violation.line,
        field=violation.field,
        expected=violation.expected,
        code=violation.code,
    )


def _contradictions(claim: Claim, runs: Sequence[Run], benchmark: Benchmark) -> list[Violation]:
    """Where the logs say something else than the claim."""
    found: list[Violation] = []
    batch_size = (benchmark.defaults() | dict(claim.hyperparameters)).get("batch_size")
    for run in runs:
        if run.division is not None and run.division != claim.division:
            found.append(
                Violation(
                    "division_contradicts_claim",
                    f"the log is of the {run.division!r} division",
                    file=run.name,
                    field="submission_division",
                    expected=repr(claim.division),
                )
            )
        if batch_size is not None and run.batch_size not in (None, batch_size):
            found.append(
                Violation(
                    "batch_size_contradicts_claim",
                    f"the log has batch size {run.batch_size}",
                    file=run.name,
                    field="global_batch_size",
                    expected=f"{batch_size:g} as in the claim",
                )
            )
    return found


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:80] or "unknown"
