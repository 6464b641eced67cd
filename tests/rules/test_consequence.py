"""Decisions about evidence in words."""

import pytest

from finishline.rules.ranking.evidence import consequence

MEASURED = {"evidence": "measured", "check": None}
AGREES = {"evidence": "claimed", "check": "epochs_agree"}
CLAIMED = {"evidence": "claimed", "check": "none"}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (MEASURED, CLAIMED, "drops from measured to claimed"),
        (MEASURED, AGREES, "drops from measured to claimed · epochs agree"),
        (AGREES, MEASURED, "rises from claimed to measured"),
        (CLAIMED, AGREES, "changes from claimed to claimed · epochs agree"),
        (MEASURED, MEASURED, "stays measured"),
    ],
)
def test_a_decision_says_what_becomes_of_the_row(
    before: dict[str, str | None], after: dict[str, str | None], words: str
) -> None:
    assert consequence(before, after) == words
