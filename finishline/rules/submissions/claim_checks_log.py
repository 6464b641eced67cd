"""Checks of one log: epochs, samples and times go on steadily, from the start to the end."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.scoring.run import Evaluation, Run
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.scoring.violations import Violation

REFERENCE_INTERVAL_EPOCHS = 1.0
STEADY = 0.01
MISSING = 1.5
FEWEST_STEPS = 4
# A host that becomes free makes the last epochs fast after many slow ones, so the median is no bar.
# Nothing makes a single one this much faster than the next fastest.
FASTEST_STEP = 0.2
# Largest distance of two clocks of one run: a log's writer may read two of its lines at once.
STAMP_SECONDS = 0.05


def check_log(run: Run, benchmark: Benchmark, *, division: str) -> list[Violation]:
    """Find signs, by line, that a log does not come from one whole training."""
    replayed = benchmark.replay is not None and division == "closed"
    order = _check_order(run, every_epoch=replayed)
    if order:
        return order
    return [
        *_check_preparation(run, benchmark),
        *_check_told(run, every_epoch=replayed),
        *_check_gaps(run, every_epoch=replayed),
        *_check_samples(run),
        *_check_pace(run),
    ]


def _check_preparation(run: Run, benchmark: Benchmark) -> list[Violation]:
    """Check that a log reports preparation if the clock counts it and the log's own does not.

    Without init_start its time is unknown, and unknown must not count as none.
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


def _check_told(run: Run, *, every_epoch: bool) -> list[Violation]:
    """Check that all evaluations tell their epoch or none does, if each epoch has one.

    Convergence is judged by those that tell it; the others cannot be compared.
    """
    untold = [evaluation for evaluation in run.evaluations if evaluation.epoch is None]
    if not every_epoch or len(untold) in (0, len(run.evaluations)):
        return []
    return [
        Violation(
            "evaluations_missing",
            "an evaluation without an epoch, while others in the log have one",
            file=run.name,
            line=untold[0].line,
            field="epoch_num",
            expected="the epoch of every evaluation",
        )
    ]


def _check_order(run: Run, *, every_epoch: bool) -> list[Violation]:
    """Epochs and samples grow: where they go back, another run begins.

    Epochs are often rounded, so that one may be told twice, but not where each has its evaluation.
    """
    found = []
    for name, key in (("epoch", "epoch_num"), ("samples", "samples_count")):
        counts = [getattr(evaluation, name) for evaluation in run.evaluations]
        steps = zip(run.evaluations[1:], counts, counts[1:], strict=False)
        for after, first, second in steps:
            if first is None or second is None or second > first:
                continue
            if second == first and name == "epoch" and not every_epoch:
                continue
            found.append(
                Violation(
                    "epochs_go_back",
                    f"{name} {second:g} after {first:g}",
                    file=run.name,
                    line=after.line,
                    field=key,
                    expected=f"more than {first:g}: the log of one run",
                )
            )
    return found


def _check_gaps(run: Run, *, every_epoch: bool) -> list[Violation]:
    """Evaluations that are left out where they come at even steps.

    The reference evaluates after each epoch, so a closed claim that can be replayed does too; for
    any other log the steps between its own evaluations must be even for one to be called missing.
    """
    if run.clock == "dawnbench":
        return []
    places = _places(run.evaluations)
    if places is None:
        return []
    steps = [after - before for before, after in pairwise(places)]
    if every_epoch and run.evaluations[0].epoch is not None:
        interval: float | None = REFERENCE_INTERVAL_EPOCHS
        steps = [places[0], *steps]
        lines = [evaluation.line for evaluation in run.evaluations]
    else:
        interval = _even_interval(steps)
        lines = [evaluation.line for evaluation in run.evaluations[1:]]
    if interval is None:
        return []
    return [
        Violation(
            "evaluations_missing",
            f"{step:g} between two evaluations",
            file=run.name,
            line=line,
            field="eval_accuracy",
            expected=f"one every {interval:g}",
        )
        for step, line in zip(steps, lines, strict=True)
        if step > MISSING * interval
    ]


def _even_interval(steps: Sequence[float]) -> float | None:
    """The step between evaluations if all but one in five are of its length, else None."""
    if len(steps) < FEWEST_STEPS:
        return None
    usual = median(steps)
    even = sum(abs(step - usual) <= STEADY * usual for step in steps)
    return usual if even >= 0.8 * len(steps) else None


def _check_samples(run: Run) -> list[Violation]:
    """Every epoch has as many samples as every other."""
    both = [e for e in run.evaluations if e.epoch and e.samples]
    ratios = [evaluation.samples / evaluation.epoch for evaluation in both]  # type: ignore[operator]
    if len(ratios) < 2:
        return []
    usual = median(ratios)
    return [
        Violation(
            "samples_contradict_epochs",
            f"{evaluation.samples} samples at epoch {evaluation.epoch:g}",
            file=run.name,
            line=evaluation.line,
            field="samples_count",
            expected=f"about {usual:g} for each epoch, as elsewhere in the log",
        )
        for evaluation, ratio in zip(both, ratios, strict=True)
        if abs(ratio - usual) > STEADY * usual
    ]


def _check_pace(run: Run) -> list[Violation]:
    """No single stretch of a run takes a fifth of the time of the next fastest, or none at all.

    A stretch is not reported if it is short by no more than the possible delay of a line's stamp.
    """
    if run.clock == "dawnbench":
        return []
    paces = _paces(run.evaluations)
    if len(paces) < FEWEST_STEPS:
        return []
    evaluation, seconds, distance = min(paces, key=_seconds_per_step)
    _, next_fastest, *_ = sorted(map(_seconds_per_step, paces))
    usual = next_fastest * distance
    if seconds >= FASTEST_STEP * usual or usual - seconds <= STAMP_SECONDS:
        return []
    return [
        Violation(
            "time_steps_differ",
            f"{seconds / distance:.3g} s for a step, and no other one of the log takes less than "
            f"{next_fastest:.3g} s",
            file=run.name,
            line=evaluation.line,
            field="time_ms",
            expected="the times of one run",
        )
    ]


def _seconds_per_step(pace: tuple[Evaluation, float, float]) -> float:
    _, seconds, distance = pace
    return seconds / distance


def _paces(evaluations: Sequence[Evaluation]) -> list[tuple[Evaluation, float, float]]:
    """Seconds, and epochs or samples, from the evaluation before to every one but the first."""
    places = _places(evaluations)
    if places is None:
        return []
    steps = zip(evaluations, evaluations[1:], places, places[1:], strict=False)
    return [
        (after, after.seconds - before.seconds, second - first)
        for before, after, first, second in steps
        if second > first
    ]


def _places(evaluations: Sequence[Evaluation]) -> list[float] | None:
    """Epochs of the evaluations, or samples where there are none; None if both are missing."""
    epochs = [evaluation.epoch for evaluation in evaluations if evaluation.epoch is not None]
    if len(epochs) == len(evaluations):
        return epochs
    samples = [float(e.samples) for e in evaluations if e.samples is not None]
    return samples if len(samples) == len(evaluations) else None


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
