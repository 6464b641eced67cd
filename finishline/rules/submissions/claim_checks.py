"""Contradictions in a submission, found before anything is trained again."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.scoring.run import Run
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.scoring.tta import first_evaluation_at_target
from finishline.rules.scoring.violations import Violation, find_gone_back
from finishline.rules.statistics.significance import SHORTEST_SECONDS
from finishline.rules.submissions.claim import Claim

# Curves with fewer evaluations may agree by chance.
FEWEST_EVALUATIONS = 4


def check_claim(claim: Claim, runs: Sequence[Run], benchmark: Benchmark) -> list[Violation]:
    """Every rule that claim and logs break together, each with its log, line and field."""
    claimed = benchmark.defaults() | dict(claim.hyperparameters)
    found = check_same_logs(runs)
    if "batch_size" not in claimed:
        found += _check_batch_sizes(runs)
    for run in runs:
        found += _check_order(run)
        found += _check_preparation(run, benchmark)
        found += _check_settings(run, claimed)
        found += _check_accelerators(run, claim)
    return found


def check_same_logs(runs: Sequence[Run]) -> list[Violation]:
    """Logs of one training under several names: curve and timing are the same.

    Seed, names and the moment of the start may differ. Two trainings never agree in the
    milliseconds of several evaluations. Equal seeds are reported elsewhere.
    """
    found = []
    first: dict[tuple[object, ...], Run] = {}
    for run in runs:
        if len(run.evaluations) < FEWEST_EVALUATIONS:
            continue
        other = first.setdefault(_training_of(run), run)
        if other is not run and (run.seed is None or run.seed != other.seed):
            found.append(
                Violation(
                    "same_log",
                    f"every quality and time equals that of {other.name}",
                    file=run.name,
                    field="runs",
                    expected="a separate training for every run",
                )
            )
    return found


def _training_of(run: Run) -> tuple[object, ...]:
    """Place, quality and milliseconds since the first of all evaluations."""
    start = run.evaluations[0].seconds
    return tuple(
        (e.samples if e.epoch is None else e.epoch, round((e.seconds - start) * 1000), e.quality)
        for e in run.evaluations
    )


def _check_batch_sizes(runs: Sequence[Run]) -> list[Violation]:
    """The batch size has one value in a set."""
    first = next((run for run in runs if run.batch_size is not None), None)
    if first is None:
        return []
    return [
        Violation(
            "batch_size_differs",
            f"{run.batch_size!r}, but {first.batch_size!r} in {first.name}",
            file=run.name,
            field="global_batch_size",
            expected="one in a set",
        )
        for run in runs
        if run.batch_size not in (None, first.batch_size)
    ]


def _check_order(run: Run) -> list[Violation]:
    """Epochs and samples never fall: where they go back, another run begins."""
    found = []
    for name, key in (("epoch", "epoch_num"), ("samples", "samples_count")):
        counts = [getattr(evaluation, name) for evaluation in run.evaluations]
        for after, first, second in zip(run.evaluations[1:], counts, counts[1:], strict=False):
            if first is None or second is None or second >= first:
                continue
            found.append(
                Violation(
                    "epochs_go_back",
                    f"{name} {second:g} after {first:g}",
                    file=run.name,
                    line=after.line,
                    field=key,
                    expected=f"at least {first:g}: the log of one run",
                )
            )
    return found


def _check_preparation(run: Run, benchmark: Benchmark) -> list[Violation]:
    """Check that a log reports preparation if the clock counts it and the log's own does not.

    Without init_start its time is unknown, and it must not count as zero.
    """
    is_counted = benchmark.clock.name == "dawnbench" and run.clock == "mlperf"
    has_ledger = any(evaluation.ledger is not None for evaluation in run.evaluations)
    if not is_counted or not has_ledger or run.preparation_seconds is not None:
        return []
    return [
        Violation(
            "preparation_missing",
            "no init_start, and preparing is on the clock of this benchmark",
            file=run.name,
            field="init_start",
            expected="init_start where the process starts, before run_start",
        )
    ]


def _check_settings(run: Run, claimed: Mapping[str, float]) -> list[Violation]:
    """Settings of the log that the claim, or the reference where it is silent, has otherwise."""
    return [
        Violation(
            "hyperparameter_contradicts_claim",
            f"the log has {name} = {run.hyperparameters[name]:g}",
            file=run.name,
            field=name,
            expected=f"{value:g} as in the claim",
        )
        for name, value in claimed.items()
        if name in run.hyperparameters and run.hyperparameters[name] != value
    ]


def _check_accelerators(run: Run, claim: Claim) -> list[Violation]:
    """The accelerators of a log, where it counts them, are the claimed ones."""
    logged = run.hyperparameters
    if "accelerators_per_node" not in logged:
        return []
    count = logged["accelerators_per_node"] * logged.get("number_of_nodes", 1.0)
    if count == claim.system.accelerator_count:
        return []
    return [
        Violation(
            "accelerators_contradict_claim",
            f"the log has {count:g} accelerators",
            file=run.name,
            field="accelerators_per_node",
            expected=f"{claim.system.accelerator_count} as in the claim",
        )
    ]


# No count of epochs is near these.
FEWEST_EPOCHS, MOST_EPOCHS = 1e-6, 1e9


def check_figures(run: Run, benchmark: Benchmark) -> list[Violation]:
    """Find the first impossible quality and epoch in a log, with their line."""
    qualities = _impossible_qualities(run, benchmark.target)
    found = (next(qualities, None), next(_impossible_epochs(run), None))
    return [violation for violation in found if violation is not None]


def check_published_run(run: Run, benchmark: Benchmark) -> list[Violation]:
    """An impossible quality of a published log, and an end that is behind its middle."""
    found = list(islice(_impossible_qualities(run, benchmark.target), 1))
    if run.clock == "mlperf" and not benchmark.target.offline:
        gone_back = find_gone_back(run, unit=benchmark.convergence_unit)
        found += [] if gone_back is None else [gone_back]
    return found


def check_times(
    runs: Sequence[Run], scores: Sequence[RunScore], benchmark: Benchmark
) -> list[Violation]:
    """Times to the target, as they are scored, that no training has."""
    return [
        _impossible_time(run, tta_seconds, benchmark)
        for run, score in zip(runs, scores, strict=True)
        if (tta_seconds := score.tta_seconds) is not None and tta_seconds < SHORTEST_SECONDS
    ]


def _impossible_qualities(run: Run, target: QualityTarget) -> Iterator[Violation]:
    for metric in (target, *target.also):
        name = metric.logged_as or metric.metric
        for evaluation in run.evaluations:
            quality = (
                evaluation.quality if metric is target else (evaluation.others or {}).get(name)
            )
            if quality is None or metric.is_possible(quality):
                continue
            yield Violation(
                "impossible_quality",
                f"{metric.metric} {quality:g}",
                file=run.name,
                line=evaluation.line,
                field=metric.metric,
                expected=metric.possible_in_words,
            )


def _impossible_epochs(run: Run) -> Iterator[Violation]:
    for evaluation in run.evaluations:
        epoch = evaluation.epoch
        if not epoch or FEWEST_EPOCHS <= epoch <= MOST_EPOCHS:
            continue
        yield Violation(
            "impossible_epoch",
            f"epoch {epoch:g}",
            file=run.name,
            line=evaluation.line,
            field=_field(run, "epoch"),
            expected=f"0, or {FEWEST_EPOCHS:g} to {MOST_EPOCHS:g} epochs",
        )


def _impossible_time(run: Run, tta_seconds: float, benchmark: Benchmark) -> Violation:
    reached = first_evaluation_at_target(run.evaluations, benchmark.target, benchmark.reach)
    return Violation(
        "impossible_time",
        f"at the target after {tta_seconds:g} s",
        file=run.name,
        line=None if reached is None else reached.line,
        field=_field(run, "time"),
        expected=f"a training of at least {SHORTEST_SECONDS:g} s",
    )


def _field(run: Run, figure: str) -> str:
    """Name of a figure in the format of a log."""
    names = ("epoch", "hours") if run.clock == "dawnbench" else ("epoch_num", "time_ms")
    return names[0] if figure == "epoch" else names[1]


def find_cut_off(scored: Iterable[tuple[Run, RunScore]]) -> list[LogFormatError]:
    """A remark for each log of MLPerf's that has a run_start and no run_stop.

    It counts as far as it goes (rules.tta), so the fault is reported and nothing refused.
    """
    return [
        LogFormatError(
            f"the log ends without run_stop, so it was probably cut off; {_meaning(score)}",
            file=run.name,
            field="run_stop",
            expected="a run_stop with its status at the end of a whole log",
            code="no_run_stop",
        )
        for run, score in scored
        if run.clock == "mlperf" and run.stop_seconds is None
    ]


def _meaning(score: RunScore) -> str:
    if score.reached:
        return "its time is that of the evaluation that reached the target"
    return "its run counts as one that did not reach the target"
