"""API and page models of duels and pools."""

from dataclasses import asdict
from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from finishline.rules.statistics.pairs import PairedGap
from finishline.rules.verification.duel import (
    FEWEST_PAIRS,
    MOST_PAIRS,
    Duel,
    DuelRun,
    Ending,
    Side,
    interleave,
)
from finishline.rules.verification.duel import Pair as RulesPair
from server.base.models import Verification


class DuelCreate(BaseModel):
    """Request for a duel: two submissions to train in turn, the number of pairs, and the reason."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "challenger": "3f9k2m7q1xyz",
                    "holder": "7wyexdafxm0d",
                    "pairs": 4,
                    "reason": "record claim",
                }
            ]
        },
    )

    challenger: str = Field(min_length=1, max_length=20)
    holder: str = Field(min_length=1, max_length=20)
    pairs: int = Field(default=4, ge=FEWEST_PAIRS, le=MOST_PAIRS, strict=True)
    reason: str | None = Field(default=None, max_length=2000)


class DuelRunView(BaseModel):
    """One run: "missed" is a run that did not reach the target, "void" one that says nothing."""

    run: int
    seed: int
    ending: Ending
    seconds: float | None
    epochs: float | None


class PairView(BaseModel):
    """Two runs that followed each other, and the challenger's time over the holder's."""

    number: int
    challenger: DuelRunView
    holder: DuelRunView
    ratio: float | None
    winner: Side | None


class GapView(BaseModel):
    """The challenger's figure over the holder's, with a 95 % interval, over so many pairs."""

    pairs: int
    ratio: float
    low: float
    high: float
    p_value: float


class DuelView(BaseModel):
    """A duel: the two sides, the side that each run trains, and the result once reported.

    `test` is "paired_t" or, where a side missed the target, "count". `pairs_needed` is about how
    many pairs would separate the sides if they differ as they did here.
    """

    challenger: str
    holder: str
    order: list[Side]
    pairs: list[PairView]
    time: GapView | None
    epochs: GapView | None
    pace: GapView | None
    test: str | None
    p_value: float | None
    pairs_needed: int | None


def duel_view(verification: Verification, duel: Duel | None) -> DuelView:
    """View of a stored duel, with its result if that is given."""
    return DuelView(
        challenger=str(verification.submission_id),
        holder=str(verification.against_id),
        order=list(interleave(verification.runs // 2)),
        pairs=[_pair_view(pair) for pair in duel.pairs] if duel else [],
        time=_gap_view(duel.time) if duel else None,
        epochs=_gap_view(duel.epochs) if duel else None,
        pace=_gap_view(duel.pace) if duel else None,
        test=duel.test if duel else None,
        p_value=duel.p_value if duel else None,
        pairs_needed=duel.pairs_needed if duel else None,
    )


def _pair_view(pair: RulesPair) -> PairView:
    return PairView(
        number=pair.number,
        challenger=_run_view(pair.challenger),
        holder=_run_view(pair.holder),
        ratio=pair.ratio,
        winner=pair.winner,
    )


def _run_view(run: DuelRun) -> DuelRunView:
    table = asdict(run)
    return DuelRunView(run=table.pop("index"), **table)


def _gap_view(gap: PairedGap | None) -> GapView | None:
    if gap is None:
        return None
    return GapView(
        pairs=gap.pairs, ratio=gap.ratio, low=gap.low, high=gap.high, p_value=gap.p_value
    )


PoolState = Literal["collecting", "measured", "missed", "confirming", "unconfirmed"]


class PoolClose(BaseModel):
    """Reason to measure a configuration again."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(min_length=1, max_length=2000)


class PoolRunView(BaseModel):
    """A sealed run; `seconds` is null of one that missed the target, which counts as infinite.

    Runs that nominated a configuration for `fresh` ones are not `counted` any more.
    """

    verification_id: str
    run: int
    seed: int
    seconds: float | None
    epochs: float | None
    fresh: bool
    counted: bool


class PoolView(BaseModel):
    """The sealed runs of one configuration, and the time they measure.

    `fresh_runs` is the verification that trains its fresh runs while the state is "confirming".
    """

    id: str
    benchmark: str
    benchmark_sha256: str
    division: str
    hardware_class: str
    settings: dict[str, float]
    state: PoolState
    measured_seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    opened_at: datetime
    measured_at: datetime | None
    closed_at: datetime | None
    closed_because: str | None
    submissions: list[str]
    fresh_runs: str | None
    runs: list[PoolRunView]
