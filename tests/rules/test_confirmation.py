"""Fresh runs are asked for at the top alone, where the luck of few runs would show."""

import pytest

from finishline.rules.verification.sealed_runs import why_fresh_runs


@pytest.mark.parametrize(
    ("seconds", "others", "why"),
    [
        (9.0, [10.0, 11.0, 12.0], "would enter the first three"),
        (11.5, [10.0, 11.0, 12.0], "would enter the first three"),
        (12.0, [10.0, 11.0, 12.0], "would enter the first three"),  # Equal times share a rank.
        (12.5, [10.0, 11.0, 12.0], None),
        (11.5, [10.0, 11.0], None),  # Of three configurations each is in the first three.
        (9.0, [], None),
    ],
)
def test_the_first_three_of_more_than_three_are_trained_again(
    seconds: float, others: list[float], why: str | None
) -> None:
    assert why_fresh_runs(seconds, others=others, record_seconds=None) == why


@pytest.mark.parametrize(
    ("seconds", "why"), [(9.9, "would take the record"), (10.0, None), (10.1, None)]
)
def test_a_lower_time_than_the_record_is_trained_again_however_few_there_are(
    seconds: float, why: str | None
) -> None:
    assert why_fresh_runs(seconds, others=[10.0], record_seconds=10.0) == why
