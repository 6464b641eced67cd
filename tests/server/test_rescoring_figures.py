"""What differs between stored and derived figures, as a report names it."""

from typing import Any

from server.submissions.figures import Change, differences


def figures(**changes: Any) -> dict[str, Any]:
    run = {"file": "run_0.log", "curve": [[1, 2.0, 90.0, None]] * 8}
    return {"tta_seconds": 1.0, "result": {"cv_percent": 2.0}, "runs": [run]} | changes


def test_figures_that_agree_are_not_named() -> None:
    assert differences(figures(), figures()) == []


def test_a_figure_that_is_not_derived_any_more_is_named() -> None:
    before = figures(result={"cv_percent": 2.0, "old": 7})

    assert differences(before, figures()) == [Change("result.old", 7, None)]


def test_a_figure_that_is_absent_differs_from_one_that_is_none() -> None:
    after = figures(result={"cv_percent": 2.0, "fresh": None})

    assert differences(figures(), after) == [Change("result.fresh", None, None)]


def test_a_long_list_is_told_by_its_length() -> None:
    after = figures(runs=[{"file": "run_0.log", "curve": [[1, 2.0, 91.0, None]] * 3}])

    (change,) = differences(figures(), after)
    assert (change.field, change.before) == ("runs[0].curve", "8 items")
    assert change.after == [[1, 2.0, 91.0, None]] * 3
