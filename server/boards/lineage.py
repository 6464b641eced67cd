"""Lineage of packages: seconds that an idea gained on the parent, and the tree they form."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from finishline.rules.statistics.gaps import Gap, log_times, welch

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Gain:
    """Seconds that a package takes less than its parent, with a 95 % interval; below 0 if more.

    `ratio` is the parent's time over the package's. Seconds and their interval are those that it
    saves of the parent's measured time. `pairs` counts runs on equal seeds and data; None where the
    runs of two measurements were compared.
    """

    seconds: float
    low: float
    high: float
    ratio: float
    pairs: int | None = None


def gain_of_pairs(parent_seconds: float, gap: Gap) -> Gain:
    """Gain by runs in pairs: the time of the parent, or without the idea, over the package's."""
    saved, low, high = (parent_seconds * (1 - 1 / each) for each in (gap.ratio, gap.low, gap.high))
    return Gain(saved, low, high, gap.ratio, gap.pairs)


def gain_of_runs(
    parent_seconds: float, own: Sequence[float | None], parent: Sequence[float | None]
) -> Gain | None:
    """Gain on the parent by Welch's interval of the log times of both packages' runs.

    None below two runs each, and where a run missed the target: a ratio of the other runs alone
    would favour its side.
    """
    times = [[each for each in runs if each is not None] for runs in (parent, own)]
    gap = welch(*(log_times(each) for each in times))
    if gap is None or (len(times[0]), len(times[1])) != (len(parent), len(own)):
        return None
    return replace(gain_of_pairs(parent_seconds, gap), pairs=None)


@dataclass
class Line(Generic[Name]):
    """Packages each based on the one before; `branches` are lines that begin beside it."""

    names: list[Name] = field(default_factory=list)
    branches: dict[Name, "list[Line[Name]]"] = field(default_factory=dict)


def lines_of(parents: Mapping[Name, Name | None]) -> list[Line[Name]]:
    """Arrange packages by their parents: the child with most descendants continues a line.

    So no package lies deeper in branches than the logarithm of their number. Of equal children the
    first one in the order given goes on. A parent that is not among them counts as none.
    """
    children: dict[Name | None, list[Name]] = {}
    for name, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(name)
    sizes = _sizes(children)
    lines = []
    waiting = []
    for root in children.get(None, []):
        lines.append(Line[Name]())
        waiting.append((root, lines[-1]))
    while waiting:
        at: Name | None
        at, line = waiting.pop()
        while at is not None:
            line.names.append(at)
            following = children.get(at, [])
            heaviest = max(following, key=sizes.__getitem__, default=None)
            for branch in following:
                if branch != heaviest:
                    line.branches.setdefault(at, []).append(Line[Name]())
                    waiting.append((branch, line.branches[at][-1]))
            at = heaviest
    return lines


def _sizes(children: Mapping[Name | None, Sequence[Name]]) -> dict[Name, int]:
    order = list(children.get(None, []))
    for name in order:  # It grows: each package comes after its parent.
        order += children.get(name, [])
    sizes: dict[Name, int] = {}
    for name in reversed(order):
        sizes[name] = 1 + sum(sizes[child] for child in children.get(name, []))
    return sizes
