"""Contradictions in a submission, found before anything is trained again."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.scoring.run import Run
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.scoring.tta import first_evaluation_at_target
from finishline.rules.scoring.violations import Violation, find_gone_back
from finishline.rules.statistics.significance import SHORTEST_SECONDS
from finishline.rules.submissions.claim import Claim
from finishline.rules.submissions.claim_checks_log import check_log

SHORTEST_WORD = 3
# Curves with fewer evaluations may agree by chance.
FEWEST_EVALUATIONS = 4


def check_claim(claim: Claim, runs: Sequence[Run], benchmark: Benchmark) -> list[Violation]:
    """Every rule that claim and logs break together, each with its log, line and field."""
    claimed = benchmark.defaults() | dict(claim.hyperparameters)
    found = [*check_same_logs(runs), *_check_one(runs, "platform", "submission_platform")]
    found += _check_order_of_runs(runs, benchmark)
    if "batch_size" not in claimed:
        found += _check_one(runs, "batch_size", "global_batch_size")
    for run in runs:
        found += check_log(run, benchmark, division=claim.division)
        found += _check_settings(run, claimed)
        found += _check_system(run, claim)
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


def _check_order_of_runs(runs: Sequence[Run], benchmark: Benchmark) -> list[Violation]:
    """Check that runs beyond the counted ones are listed in the order of their start.

    The order decides the median window and which runs reach first: of 100 runs that vary by 7 % the
    result gets 3 % faster.
    """
    if len(runs) <= benchmark.runs.count:
        return []
    started = [(run.started_ms, run.name) for run in runs if run.started_ms is not None]
    return [
        Violation(
            "runs_out_of_order",
            f"it started before {before}, which is listed first",
            file=name,
            field="runs",
            expected=f"more than {benchmark.runs.count} runs, listed in the order of their starts",
        )
        for (first, before), (second, name) in pairwise(started)
        if second < first
    ]


def _check_one(runs: Sequence[Run], name: str, key: str) -> list[Violation]:
    """A setting has one value in a set."""
    first = next((run for run in runs if getattr(run, name) is not None), None)
    if first is None:
        return []
    said = getattr(first, name)
    return [
        Violation(
            f"{name}_differs",
            f"{getattr(run, name)!r}, but {said!r} in {first.name}",
            file=run.name,
            field=key,
            expected="one in a set",
        )
        for run in runs
        if getattr(run, name) not in (None, said)
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


def _check_system(run: Run, claim: Claim) -> list[Violation]:
    """The system a log was written on, where it tells, against the claimed one."""
    system = claim.system
    found = []
    texts = (system.name, system.hardware_class, system.processor, system.accelerator or "")
    if run.platform is not None and not _names_one_thing(run.platform, texts):
        found.append(
            Violation(
                "system_contradicts_claim",
                f"the log was written on {run.platform!r}",
                file=run.name,
                field="submission_platform",
                expected=f"{system.name!r} as in the claim, or the log's value as system.name",
            )
        )
    logged = run.hyperparameters
    if "accelerators_per_node" in logged:
        count = logged["accelerators_per_node"] * logged.get("number_of_nodes", 1.0)
        if count != system.accelerator_count:
            found.append(
                Violation(
                    "accelerators_contradict_claim",
                    f"the log has {count:g} accelerators",
                    file=run.name,
                    field="accelerators_per_node",
                    expected=f"{system.accelerator_count} as in the claim",
                )
            )
    return found


def _names_one_thing(platform: str, texts: Sequence[str]) -> bool:
    """Whether a platform has a word, or all its letters, in common with one of some names."""
    words, plain = _words(platform), _plain(platform)
    return any(
        (text and (plain in _plain(text) or _plain(text) in plain)) or words & _words(text)
        for text in texts
    )


def _words(text: str) -> set[str]:
    """Words that can tell systems apart, without the count in front ("8xH200")."""
    pieces = re.split(r"[^a-z0-9]+", re.sub(r"(?<![a-z0-9])\d+x(?=\w)", "", text.lower()))
    return {piece for piece in pieces if len(piece) >= SHORTEST_WORD and not piece.isdigit()}


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


# No count of epochs is near these.
FEWEST_EPOCHS, MOST_EPOCHS = 1e-6, 1e9


def check_figures(run: Run, benchmark: Benchmark) -> list[Violation]:
    """Find the first impossible quality and epoch in a log, with their line."""
    qualities = _impossible_qualities(run, benchmark.target)
    found = (next(qualities, None), next(_impossible_epochs(run), None))
    return [violation for violation in found if violation is not None]


def check_published_run(
    run: Run, benchmark: Benchmark, *, before_last: float | None = None
) -> list[Violation]:
    """Find the first impossible quality in a published log, and an end that is behind its middle.

    `before_last` is the count of an evaluation before the last that was not read, in epochs or
    samples as the benchmark counts convergence.
    """
    found = list(islice(_impossible_qualities(run, benchmark.target), 1))
    if run.clock == "mlperf" and not benchmark.target.offline:
        gone_back = find_gone_back(run, unit=benchmark.convergence_unit, before_last=before_last)
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
