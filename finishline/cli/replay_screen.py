"""A training while it runs: bars in a terminal, one line for each evaluation elsewhere."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from finishline.cli.screen import Screen
from finishline.cli.tables import quality_text, seconds_text
from finishline.rules.benchmarks.quality import UNITS

Place = Literal["inside", "below", "above"]


@dataclass(frozen=True)
class Target:
    """The quality a run is on its way to."""

    metric: str
    value: float
    unit: str
    direction: str

    def fraction_of_way(self, quality: float | None) -> float:
        """Nearness of a quality to the target, from 0 to 1."""
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
        """Place of a quality relative to the band; the edges are inside."""
        if quality < self.lower:
            return "below"
        return "above" if quality > self.upper else "inside"


@dataclass(frozen=True)
class RunProgress:
    """One run so far. `band` and `place` are None where no control point is known.

    `phase_since` is a reading of the monotonic clock.
    """

    index: int
    phase: str | None = None
    phase_since: float | None = None
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

    `bands` is keyed by the number of the evaluation, from 1. `names` sets runs apart, each by
    its index from 0: its side in a duel, or that it is a control or a repeat. `step` names the
    points of a run that are evaluated. A second attempt starts all over.
    """

    target: Target
    bands: Mapping[int, Band] = field(default_factory=dict)
    runs_planned: int | None = None
    names: Mapping[int, str] = field(default_factory=dict)
    step: str = "epoch"
    attempt: int | None = None
    runs: dict[int, RunProgress] = field(default_factory=dict)

    def named(self, run: int) -> str:
        """Word that sets a run (from 0) apart; empty if nothing does."""
        return self.names.get(run, "")

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
            return replace(run, phase=event.get("phase"), phase_since=time.monotonic())
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


PLACE_STYLES = {"inside": "green", "below": "bold red", "above": "bold yellow"}
STATUS_STYLES = {"reached": "bold green", "cancelled": "yellow"}
STATUS_WORDS = {"reached": "reached the target", "not_reached": "did not reach it"}
# Phases that take minutes with some models, and show no quality.
PREPARING = {
    "compile": "compiling, on made-up data",
    "warmup": "warming up, on made-up data",
    "data": "reading the data",
}
BAR_WIDTH = 16  # One run's line fits a terminal of 80 columns.


class ReplayScreen(Protocol):
    """Something that shows events as they come."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Show one ReplayEvent."""


class _Bars:
    def __init__(self, progress: ReplayProgress, live: Live) -> None:
        self._progress = progress
        self._live = live

    def show(self, event: Mapping[str, Any]) -> None:
        self._progress.take_event(event)
        self._live.refresh()


class _Lines:
    def __init__(self, progress: ReplayProgress, screen: Screen) -> None:
        self._progress = progress
        self._screen = screen

    def show(self, event: Mapping[str, Any]) -> None:
        run = self._progress.take_event(event)
        prepares = event.get("phase") in PREPARING and run.epoch is None
        if prepares or event.get("kind") in ("evaluation", "run_finished"):
            self._screen.say(
                Text(f"  {_name_of(run.index, self._progress)}  ").append_text(self._line(run))
            )

    def _line(self, run: RunProgress) -> Text:
        return line_of(run, self._progress) if run.status is None else ending_of(run)


@contextmanager
def replay_screen(screen: Screen, progress: ReplayProgress) -> Iterator[ReplayScreen]:
    """Show a training until the block ends."""
    if screen.as_json or not screen.console.is_terminal:
        yield _Lines(progress, screen)
        return
    with Live(
        get_renderable=lambda: bars(progress), console=screen.console, refresh_per_second=10
    ) as live:
        yield _Bars(progress, live)


def show_all(screen: Screen, progress: ReplayProgress, events: Iterable[Mapping[str, Any]]) -> None:
    """Show every event of a training."""
    with replay_screen(screen, progress) as shown:
        for event in events:
            shown.show(event)


def bars(progress: ReplayProgress) -> Table:
    """One bar for each run, filled by how near its quality is to the target."""
    table = Table.grid(padding=(0, 2, 0, 0))
    planned = max(progress.runs_planned or 0, 1 + max(progress.runs, default=-1))
    for index in range(planned):
        run = progress.runs.get(index, RunProgress(index))
        way = progress.target.fraction_of_way(run.quality)
        bar = ProgressBar(total=1.0, completed=way, width=BAR_WIDTH)
        name = f"  run {index + 1}/{planned} {progress.named(index)}".rstrip()
        table.add_row(name, bar, line_of(run, progress))
    return table


def _name_of(run: int, progress: ReplayProgress) -> str:
    return f"run {run + 1} {progress.named(run)}".rstrip()


def line_of(run: RunProgress, progress: ReplayProgress) -> Text:
    """Progress of a run, in one line."""
    text = Text()
    if run.epoch is not None:
        target = progress.target
        quality = quality_text(run.quality, target.unit, target=target.value)
        text.append(f"{progress.step} {run.epoch:<5g} {quality:>8}  {seconds_text(run.seconds):>8}")
    if run.status is None and run.place is not None and run.band is not None:
        text.append(f"  {run.place}", style=PLACE_STYLES[run.place])
        # A band computed from a spread may pass what a quality can be.
        lower = max(0.0, run.band.lower)
        upper = min(run.band.upper, UNITS.get(progress.target.unit) or run.band.upper)
        text.append(f" {lower:.2f}..{upper:.2f}", style="dim")
    if run.status is not None:
        text.append("  ").append_text(ending_of(run))
    elif run.epoch is None:
        text.append(_doing(run), style="dim")
    return text


def _doing(run: RunProgress) -> str:
    """The phase before the first evaluation; for how long, once that is worth telling."""
    words = PREPARING.get(run.phase or "", run.phase or "waiting")
    seconds = 0 if run.phase_since is None else int(time.monotonic() - run.phase_since)
    return words if seconds < 1 else f"{words}, {seconds} s"


def ending_of(run: RunProgress) -> Text:
    """Describe the end of a run."""
    status = run.status or "ended"
    words = STATUS_WORDS.get(status, status.replace("_", " "))
    return Text(words, style=STATUS_STYLES.get(status, "bold red"))
