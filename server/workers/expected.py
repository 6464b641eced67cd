"""When what waits may start: in order, on whichever worker is free first."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Work:
    """What an attempt does, as far as its length depends on it."""

    benchmark: str
    kind: str


@dataclass(frozen=True)
class Taker:
    """A living worker that may be given work; `free_at` is None where nobody can tell."""

    name: str
    hardware_class: str
    free_at: datetime | None
    why_unknown: str | None = None


@dataclass(frozen=True)
class Expected:
    """When an attempt should start; None, and why, where there is nothing to go by."""

    start: datetime | None
    why_unknown: str | None = None


# Seconds of an attempt on a worker of a hardware class: the median of recent ones.
Typical = Mapping[tuple[Work, str], float]


def typical_seconds(ended: Iterable[tuple[Work, str, float]]) -> Typical:
    """The median seconds of attempts by what they do and on which hardware class."""
    seconds: dict[tuple[Work, str], list[float]] = {}
    for work, hardware_class, took in ended:
        seconds.setdefault((work, hardware_class), []).append(took)
    return {key: statistics.median(found) for key, found in seconds.items()}


def busy_taker(
    name: str, hardware_class: str, work: Work, *, since: datetime, typical: Typical, now: datetime
) -> Taker:
    """A worker that is at something: free when that has taken as long as such attempts do.

    One that takes longer than that is expected to end at any moment.
    """
    took = typical.get((work, hardware_class))
    if took is None:
        return Taker(name, hardware_class, None, _nothing_to_go_by(work, hardware_class))
    return Taker(name, hardware_class, max(now, since + timedelta(seconds=took)))


def expected_starts(
    waiting: Sequence[tuple[Work, str | None]],
    takers: Sequence[Taker],
    typical: Typical,
    *,
    now: datetime,
) -> list[Expected]:
    """When each of what waits, the oldest first, should start.

    Each comes with the hardware class it wants, None for any. A worker of that class takes it, or
    any worker where there is none of that class.
    """
    free = {taker.name: taker for taker in takers}
    starts = []
    for work, wanted in waiting:
        able = [taker for taker in free.values() if taker.hardware_class == wanted]
        expected, taker = _first_free(able or list(free.values()), now)
        starts.append(expected)
        if taker is not None and expected.start is not None:
            free[taker.name] = _occupied(taker, work, expected.start, typical)
    return starts


def _first_free(takers: Sequence[Taker], now: datetime) -> tuple[Expected, Taker | None]:
    if not takers:
        return Expected(None, "no worker that could take it is connected"), None
    known = [(taker.free_at, taker) for taker in takers if taker.free_at is not None]
    if not known:
        return Expected(None, takers[0].why_unknown), None
    free_at, taker = min(known, key=lambda pair: pair[0])
    return Expected(max(now, free_at)), taker


def _occupied(taker: Taker, work: Work, start: datetime, typical: Typical) -> Taker:
    took = typical.get((work, taker.hardware_class))
    if took is None:
        why = _nothing_to_go_by(work, taker.hardware_class)
        return replace(taker, free_at=None, why_unknown=why)
    return replace(taker, free_at=start + timedelta(seconds=took))


def _nothing_to_go_by(work: Work, hardware_class: str) -> str:
    return (
        f"no {work.kind} of {work.benchmark} on {hardware_class} has ended yet that could tell how "
        "long the one before it takes"
    )
