"""Ledgers as stacked bars: where each phase of a run is drawn, and how wide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from finishline.rules.scoring.run import Phase

PHASES = tuple(phase.value for phase in Phase)


@dataclass(frozen=True)
class Segment:
    """One phase of a run; `start_percent` and `percent` are of the longest run of the set."""

    phase: str
    seconds: float
    start_percent: float
    percent: float


@dataclass(frozen=True)
class Bar:
    """One run as a bar of segments, in the order the phases happen; None without a ledger."""

    segments: tuple[Segment, ...]
    total_seconds: float | None


def ledger_bars(runs: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """One bar per run, all on the scale of the longest run."""
    ledgers = [run["ledger"] for run in runs]
    longest = max((sum(ledger.values()) for ledger in ledgers if ledger), default=0.0)
    return [_bar(ledger, longest) for ledger in ledgers]


def phases_used(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The phases that any run spent time in."""
    return [phase for phase in PHASES if any((run["ledger"] or {}).get(phase) for run in runs)]


def _bar(ledger: Mapping[str, float] | None, longest: float) -> Bar:
    if not ledger:
        return Bar(segments=(), total_seconds=None)
    spent = [(phase, ledger[phase]) for phase in PHASES if ledger.get(phase)]
    starts = accumulate((seconds for _, seconds in spent), initial=0.0)
    segments = tuple(
        Segment(phase, seconds, start / longest * 100, seconds / longest * 100)
        for (phase, seconds), start in zip(spent, starts, strict=False)
    )
    return Bar(segments=segments, total_seconds=sum(ledger.values()))
