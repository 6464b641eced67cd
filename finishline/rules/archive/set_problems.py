"""Problems of an MLPerf result set as a whole: its runs, their seeds, its round."""

from collections.abc import Mapping, Sequence

from finishline.rules.archive.files import ArchiveFile
from finishline.rules.archive.mlperf_runs import PublishedRun
from finishline.rules.archive.problems import Problems, Severity
from finishline.rules.archive.submissions import RESULT_NAME
from finishline.rules.benchmarks.benchmark import Benchmark, RunsRule
from finishline.rules.text import count_text

MAX_SEEDS_TOLD = 5
# Two runs of self-play differ even with one seed: the published seed checker leaves MiniGo out.
SEEDS_MAY_REPEAT = ("minigo",)


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
    runs: Sequence[PublishedRun],
    benchmark: Benchmark | None,
    rule: RunsRule,
    olympic: float | None,
    path: str,
    problems: Problems,
    *,
    alone: bool,
) -> None:
    """Note too few runs, too few that converged, and seeds; a log `alone` is no set."""
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
            count_text(len(runs), "run"),
            file=path,
            expected=count_text(rule.wanted, "run"),
            severity="warning" if alone else "error",
        )
    elif olympic is None:
        missed = sum(not run.converged for run in runs)
        problems.add(
            "too_few_converged",
            f"{missed} of {count_text(len(runs), 'run')} did not converge",
            file=path,
            expected=f"at most {rule.dropped} that did not",
        )
    _add_seed_problems(runs, rule, problems)


def _add_seed_problems(runs: Sequence[PublishedRun], rule: RunsRule, problems: Problems) -> None:
    """Note seeds that are missing or those of another run.

    Where every rank logs a seed of its own and nothing was asked of them, some are alike by chance;
    a run that has no other seeds than those repeats a run.
    """
    free = any(run.run.benchmark in SEEDS_MAY_REPEAT for run in runs)
    by_seed: dict[int, str] = {}
    for run in runs:
        expected = "a different seed for every run"
        if not run.seeds:
            problems.add(
                "no_seed",
                "no seed in the log",
                file=run.run.name,
                field="seed",
                expected=expected,
                severity="warning",
            )
        repeated = [seed for seed in run.seeds if seed in by_seed]
        by_chance = rule.seeds == "if_logged" and len(repeated) < len(run.seeds)
        severity: Severity = "warning" if by_chance or free else "error"
        for seed in repeated[:MAX_SEEDS_TOLD]:
            problems.add(
                "same_seed",
                f"seed {seed} is also the seed of {by_seed[seed]}",
                file=run.run.name,
                field="seed",
                expected=expected,
                severity=severity,
            )
        for seed in run.seeds:
            by_seed.setdefault(seed, run.run.name.rpartition("/")[2])


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
