"""Whether a verdict confirms the claimed time."""

from dataclasses import asdict

import pytest

from rules.confirmed_time import time_confirmed
from rules.verdict import Reason

WITHIN = {"ratio": 1.5, "tolerated_ratio": 1.5, "p_value": 0.4}
BEYOND = {"ratio": 6.38, "tolerated_ratio": 1.5, "p_value": 0.0012}
CONVERGES = Reason("convergence_agrees", "supports", "")


@pytest.mark.parametrize(
    ("finding", "confirmed"),
    [
        (Reason("time_agrees", "supports", "", WITHIN), True),
        (Reason("time_agrees", "supports", ""), True),  # Stored before its figures were.
        (Reason("time_agrees", "supports", "", BEYOND), False),
        (Reason("hardware_differs", "note", ""), False),
        (Reason("noisy_host", "note", "", {"cpu_share": 0.4}), False),
        (Reason("claim_has_no_time", "note", ""), False),
    ],
)
def test_a_time_is_confirmed_by_replays_that_took_it_within_the_tolerance(
    finding: Reason, confirmed: bool
) -> None:
    reasons = [asdict(CONVERGES), asdict(finding)]

    assert time_confirmed("replay", "verified", reasons) is confirmed


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("replay", "rejected"),
        ("replay", "inconclusive"),
        ("replay", None),
        ("latency", "verified"),
        ("duel", "challenger_faster"),
    ],
)
def test_of_what_no_replay_verified_nothing_is_told(kind: str, outcome: str | None) -> None:
    reasons = [asdict(Reason("time_agrees", "supports", "", WITHIN))]

    assert time_confirmed(kind, outcome, reasons) is None
