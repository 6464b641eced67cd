"""A verdict stands on figures: which of them are others today."""

from dataclasses import asdict, replace

from finishline.rules.scoring.scoring import RunScore
from finishline.rules.verification.verdict import ChangedFigure, changed_figures

RUN = RunScore(
    file="run_0.log",
    seed=1,
    reached=True,
    tta_seconds=11.4,
    epochs_to_target=8.0,
    best_quality=98.1,
    evaluation_interval_seconds=None,
)


def test_figures_that_are_the_same_but_for_the_last_digits_stand() -> None:
    again = replace(RUN, tta_seconds=11.4 * (1 + 1e-15), evaluation_interval_seconds=0.1)

    assert changed_figures([asdict(RUN)], [again]) == []


def test_each_figure_that_changed_is_told_as_it_was_and_is() -> None:
    again = replace(RUN, reached=False, tta_seconds=None, best_quality=97.0)

    assert changed_figures([asdict(RUN)], [again]) == [
        ChangedFigure("run_0.log", "reached", True, False),
        ChangedFigure("run_0.log", "tta_seconds", 11.4, None),
        ChangedFigure("run_0.log", "best_quality", 98.1, 97.0),
    ]


def test_a_run_that_was_not_judged_differs_in_every_figure() -> None:
    other = replace(RUN, file="run_1.log")
    found = changed_figures([asdict(RUN)], [RUN, other])

    assert {(change.file, change.judged) for change in found} == {("run_1.log", None)}
    assert len(found) == 4
