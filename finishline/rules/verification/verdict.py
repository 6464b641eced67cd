"""The end of a verification: an outcome, and typed reasons with their numbers."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["verified", "rejected", "inconclusive"]
HeadToHeadOutcome = Literal["challenger_faster", "not_proven", "continues", "inconclusive"]


def outcome_text(outcome: str, *, by_quality: bool) -> str:
    """Put an outcome in words. Where qualities rank, "faster" becomes "better"."""
    words = outcome.replace("faster", "better") if by_quality else outcome
    return words.replace("_", " ")


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
    "quality_compared",
    "claim_has_no_time",
    "below_entropy",
    "precision_agrees",
    "precision_differs",
    "worker_drifted",
    "no_second_worker",
    "cross_check_differs",
    "infrastructure",
    "replay_failed",
    "head_to_head_time",
    "head_to_head_pace",
    "head_to_head_epochs",
    "head_to_head_missed",
    "latency_agrees",
    "latency_slower_than_claimed",
    "latency_not_measured",
    "latency_not_compared",
    "claim_has_no_latency",
    "backend_absent",
    "second_half_agrees",
    "second_half_short",
    "second_half_disagrees",
    "control_learned",
    "carried_knowledge",
    "repeat_equal",
    "repeat_differs",
    "repeat_not_compared",
    "factor_effect",
]
Weight = Literal["supports", "rejects", "leaves_open", "note"]


@dataclass(frozen=True)
class Shares:
    """Share of a benchmark's alpha that each test of a verdict may use.

    An honest claim fails each test at most as often as alpha times its share (Bonferroni). The band
    has the largest: one replay below it is dropped and rejects no claim.
    """

    replay_band: float = 0.18
    convergence: float = 0.04


SHARES = Shares()


@dataclass(frozen=True)
class Reason:
    """One finding of a verdict: its kind, its effect on the outcome, its numbers."""

    code: ReasonCode
    weight: Weight
    message: str
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The outcome of a job, with every reason that counted."""

    outcome: Outcome | HeadToHeadOutcome
    reasons: tuple[Reason, ...]

    @classmethod
    def of(cls, reasons: Iterable[Reason]) -> "Verdict":
        """Reject if a reason rejects, else leave open if a reason does, else verify."""
        found = tuple(reasons)
        weights = {reason.weight for reason in found}
        if "rejects" in weights:
            return cls("rejected", found)
        return cls("inconclusive" if "leaves_open" in weights else "verified", found)


def rejects_in(division: str) -> Weight:
    """Weigh a claim beyond its replay: in the open division another model may explain it."""
    return "rejects" if division == "closed" else "leaves_open"


@dataclass(frozen=True)
class ChangedFigure:
    """A figure of a run that was judged as `judged` and is `now` another. None is absent."""

    file: str
    field: str
    judged: float | bool | None
    now: float | bool | None
