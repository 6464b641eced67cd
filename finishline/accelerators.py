"""Accelerators by their UUIDs, and those of them that a variable shows."""

from collections.abc import Sequence
from dataclasses import dataclass

CARD_NAMES = ("GPU-", "MIG-")


@dataclass(frozen=True)
class Accelerator:
    """A device by the `uuid` that CUDA_VISIBLE_DEVICES takes; `board` is that of its card."""

    uuid: str
    name: str
    board: str


@dataclass(frozen=True)
class Devices:
    """The accelerators a process sees, and why some are not there that it might expect."""

    accelerators: tuple[Accelerator, ...]
    problem: str | None = None


def shown_of(
    cards: Sequence[Sequence[Accelerator]], visible: str | None
) -> tuple[Accelerator, ...]:
    """Those that a variable shows: all if `visible` is None, else up to the first name of none."""
    if visible is None:
        return tuple(part for card in cards for part in card)
    shown: list[Accelerator] = []
    for name in visible.split(","):
        found = _named(cards, name.strip())
        if not found:
            break
        shown += found
    return tuple(shown)


def unknown_in(cards: Sequence[Sequence[Accelerator]], visible: str) -> str | None:
    """The first name of a variable that is none of these cards, unless it is to hide them all."""
    for name in map(str.strip, visible.split(",")):
        if not (name.isdecimal() or name.startswith(CARD_NAMES)):
            return None
        if not _named(cards, name):
            return name
    return None


def _named(cards: Sequence[Sequence[Accelerator]], name: str) -> Sequence[Accelerator]:
    if name.isdecimal():
        return cards[int(name)] if int(name) < len(cards) else ()
    if not name.startswith(CARD_NAMES):
        return ()
    parts = [part for card in cards for part in card]
    return [part for part in parts if name == part.uuid or part.board.startswith(name)]
