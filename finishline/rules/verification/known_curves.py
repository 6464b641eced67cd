"""Detect reported runs that are known already. Two trainings of different seeds never agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import sha256_of
from finishline.rules.text import count_text
from finishline.rules.verification.messages import ReplayReport

# Curves with fewer different qualities may agree by chance: a training that fails stands still.
DISTINCT_QUALITIES = 4


@dataclass(frozen=True)
class KnownCurve:
    """A stored curve: where it is from, in words, its seed if that is known, its qualities."""

    origin: str
    seed: int | None
    qualities: tuple[float, ...]


def check_curves(report: ReplayReport, known: Sequence[KnownCurve]) -> None:
    """Raise RuleError, naming the run, if a run equals another of the report or a known one.

    A known curve of the same seed may be equal: one machine trains a seed alike each time.
    """
    curves = [tuple(item.quality for item in run.evaluations) for run in report.runs]
    for (first, curve), (second, other) in combinations(enumerate(curves), 2):
        if are_twins(curve, other):
            _refuse(second, curve, f"run {first} of the report")
    for run, curve in zip(report.runs, curves, strict=True):
        for stored in known:
            if stored.seed != run.seed and are_twins(curve, stored.qualities):
                _refuse(run.index, curve, stored.origin)


def are_twins(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two curves agree as far as both go, and go far enough to tell trainings apart."""
    shared = min(len(first), len(second))
    return first[:shared] == second[:shared] and len(set(first[:shared])) >= DISTINCT_QUALITIES


def opening_of(qualities: Sequence[float]) -> str | None:
    """A hash of a curve's start, equal for curves that agree; None for one too short to tell."""
    opening: list[float] = []
    for quality in qualities:
        opening.append(float(quality))
        if len(set(opening)) == DISTINCT_QUALITIES:
            return sha256_of(opening)
    return None


def _refuse(run: int, curve: Sequence[float], origin: str) -> None:
    raise RuleError(
        f"run {run} of the report: its {count_text(len(curve), 'evaluation')} are those of "
        f"{origin}",
        field=f"runs[{run}].evaluations",
        expected="a curve of its own seed",
    )
