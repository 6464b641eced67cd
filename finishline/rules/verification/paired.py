"""Sides that train in turn on one worker, so that they meet the same machine, load and data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from finishline.rules.verification.entry import data_nonce
from finishline.rules.verification.job import draw
from finishline.rules.verification.messages import PACKAGE_PREFIX, Training

NO_SETTINGS: Mapping[str, float] = MappingProxyType({})
_Side = TypeVar("_Side")


def in_turn(sides: Sequence[_Side], rounds: int) -> list[_Side]:
    """Sides that the runs train, in order: A B B A A B B A ...

    Over two rounds all sides have the same mean place, so that a linear drift over the whole
    cancels for an even number of rounds. Of an odd number one round keeps the drift of one run.
    """
    return [side for turn in range(rounds) for side in sides[:: -1 if turn % 2 else 1]]


def package_side(sha256: str | None, settings: Mapping[str, float] = NO_SETTINGS) -> Training:
    """A package as a side of trainings that have no seed yet."""
    return Training(package=f"{PACKAGE_PREFIX}{sha256}", settings=dict(settings), seed=0)


def plan_in_turn(
    entropy: bytes, sides: Sequence[Training], *, rounds: int, one_seed: bool
) -> list[Training]:
    """Plan every side in each round, packages on one draw of the data for a round.

    The seeds are drawn: `one_seed` for a round, or one for each run.
    """
    each = 1 if one_seed else len(sides)
    seeds = draw(entropy, runs=rounds * each).seeds
    planned = []
    for index, side in enumerate(in_turn(sides, rounds)):
        turn = index // len(sides)
        data = data_nonce(entropy, turn).hex() if side.in_box else None
        seed = seeds[turn if one_seed else index]
        planned.append(replace(side, seed=seed, data_nonce=data))
    return planned
