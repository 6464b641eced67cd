"""Does a verdict stand on the figures that a submission has? Scoring again may change them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rules.scoring import RunScore

# What a claim is judged by: its epochs, its times, and how good its runs were.
JUDGED = ("reached", "tta_seconds", "epochs_to_target", "best_quality")
# Two machines' last digits may differ; a figure that anybody reads does not.
RELATIVE_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ChangedFigure:
    """A figure of a run that was judged as `judged` and is `now` another; None is absent."""

    file: str
    field: str
    judged: float | bool | None
    now: float | bool | None


def changed_figures(
    judged: Sequence[Mapping[str, Any]], now: Sequence[RunScore]
) -> list[ChangedFigure]:
    """The figures of runs that differ from those a verdict was reached on, kept as its evidence.

    Runs are known by their files; one that was not judged, or is not there any more, differs in
    every figure that it has.
    """
    before = {str(run["file"]): run for run in judged}
    after = {run.file: asdict(run) for run in now}
    return [
        ChangedFigure(file, field, old, new)
        for file in dict.fromkeys([*before, *after])
        for field in JUDGED
        if _differ(old := before.get(file, {}).get(field), new := after.get(file, {}).get(field))
    ]


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is not other
    return bool(abs(one - other) > RELATIVE_TOLERANCE * max(abs(one), abs(other)))
