"""Duels."""

from finishline.client.views.view import View


class DuelRun(View):
    """One run of a duel; `seconds` and `epochs` to the target."""

    run: int
    seed: int
    ending: str
    seconds: float | None
    epochs: float | None


class DuelPair(View):
    """Two runs that followed each other, and the challenger's time over the holder's."""

    number: int
    challenger: DuelRun
    holder: DuelRun
    ratio: float | None
    winner: str | None


class Gap(View):
    """The challenger's figure over the holder's, with a 95 % interval."""

    pairs: int
    ratio: float
    low: float
    high: float
    p_value: float


class Duel(View):
    """A duel: its sides, the side that each run trains, and the result."""

    challenger: str
    holder: str
    order: tuple[str, ...]
    pairs: tuple[DuelPair, ...]
    time: Gap | None
    epochs: Gap | None
    pace: Gap | None
    test: str | None
    p_value: float | None
    pairs_needed: int | None
