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
    "time_not_confirmed",
    "claim_has_no_time",
    "claim_above_band",
    "claim_curve_jumps",
    "crossing_is_noise",
    "curve_copied",
    "runs_selected",
    "below_entropy",
    "log_of_another_submission",
    "precision_agrees",
    "precision_differs",
    "worker_drifted",
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
    """How a benchmark's alpha is divided among the tests of a verdict; together they are 1.

    An honest claim fails each test at most as often as alpha times its share, so that all tests
    together fail it at most as often as alpha (Bonferroni). The larger shares stand where power
    is dear: choosing the best of many runs leaves a faint trace, a wrong curve a strong one.
    """

    replay_band: float = 0.18
    convergence: float = 0.10
    pace: float = 0.06
    selection: float = 0.52
    claim_band: float = 0.03
    curve_jumps: float = 0.01
    crossing: float = 0.02
    copied: float = 0.08


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
