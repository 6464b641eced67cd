"""Request and response models of duels."""

from pydantic import ConfigDict, Field

from finishline.api.schema import Schema
from finishline.rules.verification.duel import FEWEST_PAIRS, MOST_PAIRS, Ending, Side


class DuelCreate(Schema):
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


class DuelRunView(Schema):
    """One run: "missed" is a run that did not reach the target, "void" one that says nothing."""

    model_config = ConfigDict(from_attributes=True)

    run: int
    seed: int
    ending: Ending
    seconds: float | None
    epochs: float | None


class DuelPairView(Schema):
    """Two runs that followed each other, and the challenger's time over the holder's."""

    model_config = ConfigDict(from_attributes=True)

    number: int
    challenger: DuelRunView
    holder: DuelRunView
    ratio: float | None
    winner: Side | None


class GapView(Schema):
    """The challenger's figure over the holder's, with a 95 % interval, over so many pairs.

    `p_value` is two-sided.
    """

    model_config = ConfigDict(from_attributes=True)

    pairs: int
    ratio: float
    low: float
    high: float
    p_value: float


class DuelView(Schema):
    """A duel: the two sides, the side that each run trains, and the result once reported.

    `test` is "paired_t" or, where a side missed the target, "count", and `p_value` its one-sided
    p-value for the side that is ahead, as in the verdict's sentence. `pairs_needed` is about how
    many pairs would separate the sides if they differ as they did here.
    """

    challenger: str
    holder: str
    order: list[Side]
    pairs: list[DuelPairView]
    time: GapView | None
    epochs: GapView | None
    pace: GapView | None
    test: str | None
    p_value: float | None
    pairs_needed: int | None
