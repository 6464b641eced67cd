"""What is known of a training while it runs: each run's last evaluation, held against its band."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Place = Literal["inside", "below", "above"]


@dataclass(frozen=True)
class Target:
    """The quality a run is on its way to."""

    metric: str
    value: float
    unit: str
    direction: str

    def fraction_of_way(self, quality: float | None) -> float:
        """How near a quality is to the target, from 0 to 1."""
        if quality is None:
            return 0.0
        near, far = (quality, self.value) if self.direction == "higher" else (self.value, quality)
        return 1.0 if far <= 0 else min(1.0, max(0.0, near / far))


@dataclass(frozen=True)
class Band:
    """The band of a control point."""

    lower: float
    upper: float

    def place_of(self, quality: float) -> Place:
        """Where a quality is, seen from the band; the edges are inside."""
        if quality < self.lower:
            return "below"
        return "above" if quality > self.upper else "inside"


@dataclass(frozen=True)
class RunProgress:
    """One run so far. `band` and `place` are None where no control point is known."""

    index: int
    phase: str | None = None
    epoch: float | None = None
    seconds: float | None = None
    quality: float | None = None
    evaluations: int = 0
    band: Band | None = None
    place: Place | None = None
    status: str | None = None


@dataclass
class ReplayProgress:
    """A training of several runs, built up from its events.

    `bands` is keyed by the number of the evaluation, from 1. `sides` says which side of a duel each
    run trains, and is empty where there are none. A second attempt starts all over.
    """

    target: Target
    bands: Mapping[int, Band] = field(default_factory=dict)
    runs_planned: int | None = None
    sides: Sequence[str] = ()
    attempt: int | None = None
    runs: dict[int, RunProgress] = field(default_factory=dict)

    def side_of(self, run: int) -> str:
        """The side that a run (from 0) trains; empty in what is no duel."""
        return self.sides[run] if run < len(self.sides) else ""

    def take_event(self, event: Mapping[str, Any]) -> RunProgress:
        """Take in one ReplayEvent and return the run it belongs to as it is after it."""
        if event.get("attempt") != self.attempt:
            self.attempt = event.get("attempt")
            self.runs = {}
        index = int(event["run"])
        before = self.runs.get(index, RunProgress(index))
        after = self._after(before, event)
        self.runs[index] = after
        return after

    def _after(self, run: RunProgress, event: Mapping[str, Any]) -> RunProgress:
        kind = event.get("kind")
        if kind == "phase":
            return replace(run, phase=event.get("phase"))
        if kind == "run_finished":
            return replace(run, status=event.get("status"), phase=None)
        if kind != "evaluation" or event.get("quality") is None:
            return run
        quality, number = float(event["quality"]), run.evaluations + 1
        band = self.bands.get(number)
        return replace(
            run,
            epoch=event.get("epoch"),
            seconds=event.get("seconds"),
            quality=quality,
            evaluations=number,
            band=band,
            place=None if band is None else band.place_of(quality),
        )


def read_target(view: Mapping[str, Any]) -> Target:
    """The target in a benchmark's or a verification's view."""
    return Target(
        metric=str(view["metric"]),
        value=float(view["value"]),
        unit=str(view["unit"]),
        direction=str(view["direction"]),
    )


def read_bands(control_points: Sequence[Mapping[str, Any]]) -> dict[int, Band]:
    """The bands in a verification's control points, by the number of the evaluation."""
    return {
        int(point["index"]): Band(lower=float(point["lower"]), upper=float(point["upper"]))
        for point in control_points
    }
