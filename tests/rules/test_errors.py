import pytest

from finishline.rules.errors import ClaimError, LogFormatError, RuleError, SubmissionError


def test_an_error_says_where_what_and_what_was_expected() -> None:
    error = LogFormatError(
        "hours went from 0.42 to 0.40", file="entry.tsv", line=17, expected="growing hours"
    )

    assert str(error) == "entry.tsv line 17: hours went from 0.42 to 0.40; expected growing hours"


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ({}, "wrong"),
        ({"file": "a.json"}, "a.json: wrong"),
        ({"field": "runs.count"}, "field runs.count: wrong"),
        ({"file": "a.json", "field": "runs"}, "a.json, field runs: wrong"),
        ({"file": "a.log", "line": 3, "field": "seed"}, "a.log line 3, field seed: wrong"),
        ({"line": 3}, "line 3: wrong"),
    ],
)
def test_absent_places_are_left_out(place: dict[str, object], text: str) -> None:
    assert str(RuleError("wrong", **place)) == text  # type: ignore[arg-type]


def test_one_error_stands_for_itself() -> None:
    error = ClaimError("wrong")

    assert error.problems == [error]


def test_a_submission_error_keeps_every_problem_and_tells_the_first() -> None:
    problems: list[RuleError] = [
        ClaimError("first", file="submission.json", field="runs", expected="three"),
        LogFormatError("second", file="run_1.log", line=4),
    ]

    error = SubmissionError(problems)

    assert error.problems == problems
    assert str(error) == "submission.json, field runs: first (and 1 more); expected three"
