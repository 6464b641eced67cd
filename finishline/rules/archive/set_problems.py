"""Problems of an MLPerf result set as a whole: its runs, their seeds, its round."""

from collections.abc import Mapping, Sequence

from finishline.rules.archive.files import ArchiveFile
from finishline.rules.archive.problems import Problems, Severity
from finishline.rules.archive.submissions import RESULT_NAME
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.logs.mllog import Reading
from finishline.rules.scoring.scoring import Result
from finishline.rules.scoring.violations import find_repeated_seeds, find_seedless
from finishline.rules.text import count_text


def add_copies(
    file: ArchiveFile, identical: Mapping[str, tuple[str, ...]], problems: Problems
) -> None:
    if others := identical.get(file.path):
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        problems.add(
            "identical_log",
            f"byte for byte the same as {others[0]}{more}",
            file=file.path,
            expected="a separate log for every run",
            severity="warning",
        )


def add_odd_names(files: Sequence[ArchiveFile], problems: Problems) -> None:
    """Note logs that stand where results do, but are not called so."""
    for file in files:
        if not RESULT_NAME.fullmatch(file.name):
            problems.add(
                "odd_name",
                "a log among the results without a result's name",
                file=file.path,
                expected="result_0.txt, result_1.txt ...",
                severity="warning",
            )


def add_set_problems(
    readings: Sequence[Reading],
    result: Result,
    benchmark: Benchmark,
    path: str,
    problems: Problems,
    *,
    alone: bool,
) -> None:
    """Note the rules that a set breaks, and odd seeds. A log `alone` is no set."""
    rule = benchmark.runs
    for violation in result.violations:
        # The evaluations of each run are told by themselves.
        if violation.code != "no_evaluation":
            few = alone and violation.code == "too_few_runs"
            severity: Severity = "warning" if few else "error"
            problems.violate(violation, file=path, severity=severity)
    if result.raw_tta_seconds is None and result.started >= rule.wanted:
        missed = result.started - result.reached
        problems.add(
            "too_few_converged",
            f"{missed} of {count_text(result.started, 'run')} did not converge",
            file=path,
            expected=f"at most {rule.dropped} that did not",
        )
    _add_seed_problems(readings, benchmark, problems)


def note_undefined(path: str, name: str | None, version: str | None, problems: Problems) -> None:
    """Note that no definition of a benchmark in its round is known."""
    parts = ("mlperf", version and f"v{version}", name or "benchmark of unknown name")
    named = " ".join(part for part in parts if part)
    problems.add(
        "unknown_benchmark",
        f"{named} has no definition: the target is not checked",
        file=path,
        field="benchmark",
        expected="a benchmark definition (--benchmarks)",
        severity="warning",
    )


def _add_seed_problems(
    readings: Sequence[Reading], benchmark: Benchmark, problems: Problems
) -> None:
    """Note missing seeds, and those of another run that break no rule."""
    runs = [reading.run for reading in readings if not reading.placeholder]
    for violation in (*find_seedless(runs), *find_repeated_seeds(runs, benchmark)[1]):
        problems.violate(violation, file=None, severity="warning")


def note_unnamed_round(
    path: str, benchmark: Benchmark, rounds: Sequence[str], problems: Problems
) -> None:
    """Note that a set is scored by the newest of several rounds, because nothing names its own."""
    if len(rounds) > 1:
        problems.add(
            "round_not_told",
            f"neither a folder nor the logs name the round; scored as v{benchmark.version}",
            file=path,
            field="version",
            expected=f"a folder named after it: {' or '.join(f'v{each}' for each in rounds)}",
            severity="warning",
        )
