"""What tells that two logs are of one training, whatever else was edited in them."""

import hashlib
from collections.abc import Sequence

from rules.run import Evaluation, Run

FEWEST_EVALUATIONS = 4
QUALITY_DIGITS = 6


def fingerprint(run: Run) -> str:
    """SHA-256 over the curve of a run and its timing.

    Taken in are epoch, quality to six digits, and the milliseconds since the first evaluation:
    seed, names, settings, format and the moment of the start may be edited without changing it.
    Samples count where there is no epoch. Two trainings never agree in the milliseconds of several
    evaluations; below FEWEST_EVALUATIONS chance may have it so (`is_telling`).
    """
    return fingerprint_of_curve(run.evaluations)


def fingerprint_of_curve(curve: Sequence[Evaluation]) -> str:
    """The fingerprint of a run by its evaluations, as they are stored."""
    start = curve[0].seconds if curve else 0.0
    rows = [_row(evaluation, start) for evaluation in curve]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def ending(curve: Sequence[Evaluation]) -> str:
    """What a fingerprint takes in of the last evaluation: cheap to know, and telling by itself.

    Two curves that differ in it are of two trainings.
    """
    return _row(curve[-1], curve[0].seconds)


def training_sha256(curve: Sequence[Evaluation]) -> str | None:
    """The fingerprint by which the same training is found again; None where it proves nothing."""
    return fingerprint_of_curve(curve) if is_telling(curve) else None


def is_telling(curve: Sequence[Evaluation]) -> bool:
    """Whether a curve has enough evaluations for its fingerprint to prove anything."""
    return len(curve) >= FEWEST_EVALUATIONS


def _row(evaluation: Evaluation, start_seconds: float) -> str:
    place = evaluation.samples if evaluation.epoch is None else f"{evaluation.epoch:.6g}"
    milliseconds = round((evaluation.seconds - start_seconds) * 1000)
    return f"{place} {milliseconds} {evaluation.quality:.{QUALITY_DIGITS}g}"
