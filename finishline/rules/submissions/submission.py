"""Score a whole submission from its bytes, for the server and `finishline check`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import stated_price_usd_per_hour
from finishline.rules.errors import ClaimError, LogFormatError, RuleError, joined
from finishline.rules.logs import UNPACKED, check_file_name, parse_run_log, unpacked_name
from finishline.rules.run import Run
from finishline.rules.scoring.inference import InferenceResult, score_inference
from finishline.rules.scoring.scoring import Result, RunScore, score
from finishline.rules.scoring.violations import Violation
from finishline.rules.submissions.claim import Claim, read_claim
from finishline.rules.submissions.claim_checks import (
    check_claim,
    check_figures,
    check_headers,
    check_published_run,
    check_same_logs,
    check_times,
)
from finishline.rules.submissions.dawnbench_claim import is_dawnbench, read_dawnbench
from finishline.rules.text import shown

__all__ = ["ScoredSubmission", "is_dawnbench", "score_submission"]


@dataclass(frozen=True)
class ScoredSubmission:
    """A submission that was read and scored: its claim, its runs in order, its result.

    One of inference has no runs.
    """

    claim: Claim
    runs: tuple[Run, ...]
    result: Result | InferenceResult

    @property
    def scored_runs(self) -> list[tuple[Run, RunScore]]:
        """Each run with its score."""
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
    with_interval: bool = True,
) -> ScoredSubmission:
    """Read, check and score a submission. Raises a RuleError that lists every problem.

    `claim_json` is Finishline's own JSON or a DAWNBench entry, which names no benchmark: then
    `benchmark_id` must. `logs` holds the run logs by file name, and nothing else; an inference
    entry has none.

    A submission from an `archive` is not refused for the rules it breaks: they are violations of
    its result, which is then not ranked. A run may end before its first evaluation there: it did
    not reach the target. Unreadable input is refused all the same.

    `with_interval` is of `score`.
    """
    if is_dawnbench(claim_json, file=file):
        claim, entry = read_dawnbench(
            claim_json,
            logs,
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
        _refuse_contradiction(claim, file=file, benchmark_id=benchmark_id, division=division)
    return _score_training(
        claim,
        logs,
        benchmarks[claim.benchmark_id],
        file=file,
        archive=archive,
        with_interval=with_interval,
    )


def _score_training(
    claim: Claim,
    logs: Mapping[str, bytes],
    benchmark: Benchmark,
    *,
    file: str,
    archive: bool,
    with_interval: bool,
) -> ScoredSubmission:
    _check_files(claim, logs, file=file)
    runs = _parse_runs(claim, logs, benchmark, archive=archive)
    if not archive:  # First of all: nothing can be derived from impossible figures.
        _refuse([found for run in runs for found in check_figures(run, benchmark)], file=file)
    result = score(
        runs,
        benchmark,
        division=claim.division,
        price_usd_per_hour=stated_price_usd_per_hour(vars(claim.system)),
        with_interval=with_interval,
        archive=archive,
        scaling_factor=claim.scaling_factor,
    )
    violations = [*result.violations, *check_headers(claim, runs, benchmark)]
    # Results published elsewhere are checked as a whole package (rules.archive).
    if archive:
        violations += check_same_logs(runs)
        violations += [found for run in runs for found in check_published_run(run, benchmark)]
    else:
        violations += check_claim(claim, runs, benchmark)
        violations += check_times(runs, result.runs, benchmark)
        _refuse(violations, file=file)
    result = replace(result, violations=tuple(violations))
    return ScoredSubmission(claim=claim, runs=runs, result=result)


def _refuse(violations: Sequence[Violation], *, file: str) -> None:
    """Raise an error of all violations, if there are any."""
    if violations:
        raise joined([_as_error(violation, file) for violation in violations])


def _refuse_contradiction(
    claim: Claim, *, file: str, benchmark_id: str | None, division: str | None
) -> None:
    for name, given, said in (
        ("benchmark", benchmark_id, claim.benchmark_id),
        ("division", division, claim.division),
    ):
        if given is not None and given != said:
            raise ClaimError(
                f"{shown(said)}, but {shown(given)} was given beside it",
                file=file,
                field=name,
                expected=f"{shown(given)} in both places or in one",
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
            packed = next((each for each in logs if unpacked_name(each) == name), None)
            raise ClaimError(
                f"{shown(name)} was not sent" + (f", but {shown(packed)}" if packed else ""),
                file=file,
                field="runs",
                expected=UNPACKED if packed else "every run log that is listed",
            )
    for name in logs:
        if name not in claim.run_files:
            raise ClaimError(
                f"{shown(name)} was sent but is not listed",
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


def _as_error(violation: Violation, file: str) -> RuleError:
    kind = ClaimError if violation.file is None else LogFormatError
    return kind(
        violation.message,
        file=violation.file or file,
        line=violation.line,
        field=violation.field,
        expected=violation.expected,
        code=violation.code,
    )
