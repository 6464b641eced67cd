"""What a verification ends in: an outcome, and typed reasons with the numbers behind them."""

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["verified", "rejected", "inconclusive"]
ReasonCode = Literal[
    "reached_target",
    "within_band",
    "convergence_agrees",
    "time_agrees",
    "did_not_reach",
    "below_band",
    "above_band",
    "converges_faster_than_replay",
    "slower_than_claimed",
    "hardware_differs",
    "noisy_host",
    "time_not_compared",
    "claim_has_no_time",
    "infrastructure",
    "replay_failed",
]
Weight = Literal["supports", "rejects", "leaves_open", "note"]

TEST_SHARE_OF_ALPHA = 0.25


@dataclass(frozen=True)
class Reason:
    """One finding of a verdict: what it is, what it does to the outcome, the numbers behind it."""

    code: ReasonCode
    weight: Weight
    message: str
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a verification ends in, with every reason that counted."""

    outcome: Outcome
    reasons: tuple[Reason, ...]


def rejects_in(division: str) -> Weight:
    """What a claim beyond its replay means: in the open division another model may explain it."""
    return "rejects" if division == "closed" else "leaves_open"
