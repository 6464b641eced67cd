"""Find contradictions in a submission before anything is trained again."""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.lines import A_TIME, EARLIEST_TIME_MS, day_of_time, unit_hint
from finishline.rules.run import Run
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.scoring.tta import first_evaluation_at_target
from finishline.rules.scoring.violations import Violation, find_gone_back
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.submissions.claim import Claim

# Curves with fewer evaluations may agree by chance.
FEWEST_EVALUATIONS = 4
# Real counts of epochs are far from these.
FEWEST_EPOCHS, MOST_EPOCHS = 1e-6, 1e9
DAY_MS = 86_400_000
LEAST_SHARE = 0.9


def check_claim(claim: Claim, runs: Sequence[Run], benchmark: Benchmark) -> list[Violation]:
    """Find every rule that claim and logs break together, each with its log, line and field."""
    return [
        *check_same_logs(runs),
        *(found for run in runs for found in _check_run(run, claim, benchmark)),
        *_check_batch_sizes(claim, runs, benchmark),
    ]


def _check_run(run: Run, claim: Claim, benchmark: Benchmark) -> Iterator[Violation]:
    yield from _check_order(run)
    is_counted = benchmark.clock.name == "dawnbench" and run.clock == "mlperf"
    has_ledger = any(evaluation.ledger is not None for evaluation in run.evaluations)
    if is_counted and has_ledger and run.preparation_seconds is None:
        # Its time is unknown, rather than zero.
        message = "no init_start, and preparing is on the clock of this benchmark"
        expected = "init_start where the process starts, before run_start"
        yield Violation("preparation_missing", message, run.name, "init_start", expected)
    logged = run.hyperparameters
    for name, value in (benchmark.defaults() | dict(claim.hyperparameters)).items():
        if logged.get(name, value) != value:
            code = "hyperparameter_contradicts_claim"
            message = f"the log has {name} = {logged[name]:g}"
            yield Violation(code, message, run.name, name, f"{value:g} as in the claim")
    count, field = claim.system.accelerator_count, "accelerators_per_node"
    found = logged.get(field, 0) * logged.get("number_of_nodes", 1)
    if field in logged and found != count:
        message = f"the log has {found:g} accelerators"
        expected = f"{count} as in the claim"
        yield Violation("accelerators_contradict_claim", message, run.name, field, expected)


def _check_order(run: Run) -> Iterator[Violation]:
    """Require that epochs and samples never fall: where they go back, another run begins."""
    for name, key in (("epoch", "epoch_num"), ("samples", "samples_count")):
        for one, other in pairwise(run.evaluations):
            first, second = getattr(one, name), getattr(other, name)
            if first is None or second is None or second >= first:
                continue
            message = f"{name} {second:g} after {first:g}"
            expected = f"at least {first:g}: the log of one run"
            yield Violation("epochs_go_back", message, run.name, key, expected, other.line)


def _check_batch_sizes(
    claim: Claim, runs: Sequence[Run], benchmark: Benchmark
) -> Iterator[Violation]:
    """Require one batch size in a set's logs if the claim omits it."""
    first = next((run for run in runs if run.batch_size is not None), None)
    is_claimed = "batch_size" in benchmark.defaults() | dict(claim.hyperparameters)
    if first is None or is_claimed:
        return
    for run in runs:
        if run.batch_size not in (None, first.batch_size):
            message = f"{run.batch_size!r}, but {first.batch_size!r} in {first.name}"
            field = "global_batch_size"
            yield Violation("batch_size_differs", message, run.name, field, "one in a set")


def check_headers(claim: Claim, runs: Sequence[Run], benchmark: Benchmark) -> Iterator[Violation]:
    """Find logs of another division or batch size than the claim's, also in an archive."""
    batch_size = (benchmark.defaults() | dict(claim.hyperparameters)).get("batch_size")
    for run in runs:
        if run.division not in (None, claim.division):
            code, field = "division_contradicts_claim", "submission_division"
            message = f"the log is of the {run.division!r} division"
            yield Violation(code, message, run.name, field, repr(claim.division))
        if batch_size is not None and run.batch_size not in (None, batch_size):
            code, field = "batch_size_contradicts_claim", "global_batch_size"
            message = f"the log has batch size {run.batch_size}"
            yield Violation(code, message, run.name, field, f"{batch_size:g} as in the claim")


def check_same_logs(runs: Sequence[Run]) -> list[Violation]:
    """Find logs of one training under several names: curve and timing are the same.

    Two trainings never agree in the milliseconds of several evaluations.
    """
    found = []
    first: dict[tuple[object, ...], Run] = {}
    for run in runs:
        if len(run.evaluations) < FEWEST_EVALUATIONS:
            continue
        start = run.evaluations[0].seconds
        training = tuple(
            (
                e.samples if e.epoch is None else e.epoch,
                round((e.seconds - start) * 1000),
                e.quality,
            )
            for e in run.evaluations
        )
        other = first.setdefault(training, run)
        if other is not run and (run.seed is None or run.seed != other.seed):
            message = f"every quality and time equals that of {other.name}"
            expected = "a separate training for every run"
            found.append(Violation("same_log", message, run.name, "runs", expected))
    return found


def check_figures(run: Run, benchmark: Benchmark) -> list[Violation]:
    """Find the first impossible quality, epoch and start in a log, with their line."""
    checks = _impossible_qualities(run, benchmark), _impossible_epochs(run), _impossible_start(run)
    return [violation for found in checks for violation in islice(found, 1)]


def check_published_run(run: Run, benchmark: Benchmark) -> list[Violation]:
    """Find an impossible quality of a published log, and an end that is behind its middle."""
    found = list(islice(_impossible_qualities(run, benchmark), 1))
    if run.clock == "mlperf" and not benchmark.target.offline:
        gone_back = find_gone_back(run, unit=benchmark.convergence_unit)
        found += [] if gone_back is None else [gone_back]
    return found


def _impossible_qualities(run: Run, benchmark: Benchmark) -> Iterator[Violation]:
    target = benchmark.target
    for metric in (target, *target.also):
        name = metric.logged_as or metric.metric
        for each in run.evaluations:
            quality = each.quality if metric is target else (each.others or {}).get(name)
            if quality is not None and not metric.is_possible(quality):
                message, expected = f"{metric.metric} {quality:g}", metric.possible_in_words
                code = "impossible_quality"
                yield Violation(code, message, run.name, metric.metric, expected, each.line)


def _impossible_epochs(run: Run) -> Iterator[Violation]:
    field = "epoch" if run.clock == "dawnbench" else "epoch_num"
    expected = f"0, or {FEWEST_EPOCHS:g} to {MOST_EPOCHS:g} epochs"
    for each in run.evaluations:
        epoch = each.epoch
        if epoch and not FEWEST_EPOCHS <= epoch <= MOST_EPOCHS:
            message = f"epoch {epoch:g}"
            yield Violation("impossible_epoch", message, run.name, field, expected, each.line)


def _impossible_start(run: Run) -> Iterator[Violation]:
    """Find a start long before logs of MLPerf existed, or more than a day ahead."""
    if run.start_ms is None:
        return
    start_ms = run.start_ms - 1000 * (run.preparation_seconds or 0.0)
    if not EARLIEST_TIME_MS <= start_ms <= time.time() * 1000 + DAY_MS:
        message = f"the log begins on {day_of_time(start_ms)}{unit_hint(start_ms)}"
        yield Violation("impossible_start", message, run.name, "time_ms", A_TIME, run.start_line)


def check_times(
    runs: Sequence[Run], scores: Sequence[RunScore], benchmark: Benchmark
) -> list[Violation]:
    """Find times to the target, as scored, that are too short for a training."""
    found = []
    for run, score in zip(runs, scores, strict=True):
        if score.tta_seconds is None or score.tta_seconds >= SHORTEST_SECONDS:
            continue
        reached = first_evaluation_at_target(run.evaluations, benchmark.target, benchmark.reach)
        line = None if reached is None else reached.line
        message = f"at the target after {score.tta_seconds:g} s"
        field = "hours" if run.clock == "dawnbench" else "time_ms"
        expected = f"a training of at least {SHORTEST_SECONDS:g} s"
        found.append(Violation("impossible_time", message, run.name, field, expected, line))
    return found


def find_cut_off(scored: Iterable[tuple[Run, RunScore]]) -> list[LogFormatError]:
    """Remark on each MLPerf log without a run_stop, which counts as far as it goes (rules.tta)."""
    reached = "its time is that of the evaluation that reached the target"
    missed = "its run counts as one that did not reach the target"
    cut_off = "the log ends without run_stop, so it was probably cut off; "
    expected = "a run_stop with its status at the end of a whole log"
    return [
        LogFormatError(
            cut_off + (reached if score.reached else missed),
            file=run.name, field="run_stop", expected=expected, code="no_run_stop",
        )
        for run, score in scored
        if run.clock == "mlperf" and run.stop_seconds is None
    ]  # fmt: skip


def find_shared(runs: Iterable[Run]) -> list[LogFormatError]:
    """Remark on each run with less than nine tenths of its processor. The result counts."""
    return [
        LogFormatError(
            f"the training had {run.processor_share:.0%} of its processor, as other programs were "
            "running, so its time is longer than on a quiet machine",
            file=run.name,
            field="processor_share",
            expected=f"at least {LEAST_SHARE:.0%}: end other programs and train again",
            code="processor_shared",
        )
        for run in runs
        if run.processor_share is not None and run.processor_share < LEAST_SHARE
    ]
