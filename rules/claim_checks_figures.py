"""Are the figures of a log such as a training can have at all?

Whoever edits a log can write any number. One that no training has would rank before all others,
and what divides by it or takes its logarithm has no answer.
"""

from collections.abc import Iterator, Sequence

from rules.benchmark import Benchmark
from rules.quality import UNITS, QualityTarget
from rules.run import Run
from rules.scoring import RunScore
from rules.significance import SHORTEST_SECONDS
from rules.tta import first_evaluation_at_target
from rules.violations import Violation

# Of metrics whose unit sets no bounds. No quality, and no count of epochs, is near these.
SMALLEST_QUALITY, LARGEST_QUALITY = 1e-12, 1e6
FEWEST_EPOCHS, MOST_EPOCHS = 1e-6, 1e9


def check_figures(run: Run, benchmark: Benchmark) -> list[Violation]:
    """What in one log no training has: the first quality and the first epoch, with their line."""
    qualities = _impossible_qualities(run, benchmark.target)
    found = (next(qualities, None), next(_impossible_epochs(run), None))
    return [violation for violation in found if violation is not None]


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
            if quality is None or is_possible(metric, quality):
                continue
            yield Violation(
                "impossible_quality",
                f"{metric.metric} {quality:g}",
                file=run.name,
                line=evaluation.line,
                field=metric.metric,
                expected=possible_in_words(metric),
            )


def is_possible(metric: QualityTarget, quality: float) -> bool:
    """Whether a metric can have a quality at all."""
    largest = UNITS[metric.unit]
    if largest is not None:
        return 0.0 <= quality <= largest
    return quality == 0.0 or SMALLEST_QUALITY <= abs(quality) <= LARGEST_QUALITY


def possible_in_words(metric: QualityTarget) -> str:
    """The qualities that a metric can have."""
    largest = UNITS[metric.unit]
    if largest is not None:
        return f"a {metric.unit} from 0 to {largest:g}"
    return f"0, or {SMALLEST_QUALITY:g} to {LARGEST_QUALITY:g} with either sign"


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
    """What the format of a log calls a figure."""
    names = ("epoch", "hours") if run.clock == "dawnbench" else ("epoch_num", "time_ms")
    return names[0] if figure == "epoch" else names[1]
