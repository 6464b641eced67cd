"""What a verification ends in: an outcome, and typed reasons with the numbers behind them."""

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["verified", "rejected", "inconclusive"]
ReasonCode = Literal[
    "reached_target",
    "within_band",
    "curve_reproduced",
    "curve_not_reproduced",
    "own_seed_not_confirmed",
    "own_seed_not_compared",
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
    "below_entropy",
    "precision_agrees",
    "precision_differs",
    "worker_drifted",
    "no_second_worker",
    "cross_check_differs",
    "witnessed",
    "infrastructure",
    "replay_failed",
    "duel_time",
    "duel_pace",
    "duel_epochs",
    "duel_missed",
    "latency_agrees",
    "latency_slower_than_claimed",
    "latency_not_measured",
    "latency_not_compared",
    "claim_has_no_latency",
    "backend_absent",
]
Weight = Literal["supports", "rejects", "leaves_open", "note"]


@dataclass(frozen=True)
class Shares:
    """How much of a benchmark's alpha each test of a verdict may use.

    An honest claim fails each test at most as often as alpha times its share, so that all tests
    together leave it unverified at most as often as the sum (Bonferroni). The band has the largest:
    one replay below it is dropped, and rejects nobody.
    """

    replay_band: float = 0.18
    convergence: float = 0.04


SHARES = Shares()


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
