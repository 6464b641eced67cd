"""Watch a training, here or on a worker: bars in a terminal, elsewhere lines."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import CliError, ExitCode
from finishline.cli.screen import Screen, open_console
from finishline.cli.tables import View, quality_text, seconds_text
from finishline.client.sse import ServerEvent, follow_events
from finishline.rules.benchmarks.quality import UNITS, QualityTarget
from finishline.rules.verification.purposes import is_in_box

ENDED = ("done", "failed", "cancelled")
Band = tuple[float, float]  # Lower and upper edge of a control point.
Show = Callable[[View], None]


def share_of_way(target: QualityTarget, quality: float | None) -> float:
    """Return the share of the way to the target, from 0 to 1."""
    if quality is None:
        return 0.0
    near, far = quality, target.value
    if target.direction == "lower":
        near, far = far, near
    return 1.0 if far <= 0 else min(1.0, max(0.0, near / far))


@dataclass
class RunProgress:
    """One run so far."""

    index: int
    phase: str | None = None
    epoch: float | None = None
    seconds: float | None = None
    quality: float | None = None
    evaluations: int = 0
    band: Band | None = None
    status: str | None = None


@dataclass
class ReplayProgress:
    """A training of several runs, built up from its events. A second attempt starts from zero.

    `bands` counts evaluations from 1. `names` has the side of a head-to-head, "shortcut test" or
    "repeat" by run, from 0. `step` names the evaluated points of a run.
    """

    target: QualityTarget
    bands: Mapping[int, Band] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)
    step: str = "epoch"
    attempt: int | None = None
    runs: dict[int, RunProgress] = field(default_factory=dict)

    def take_event(self, event: View) -> RunProgress:
        """Apply one ReplayEvent, and return its run."""
        if event.get("attempt") != self.attempt:
            self.attempt = event.get("attempt")
            self.runs = {}
        index, kind = int(event["run"]), event.get("kind")
        run = self.runs.setdefault(index, RunProgress(index))
        if kind == "phase":
            run.phase = event.get("phase")
        elif kind == "run_finished":
            run.status = event.get("status")
        elif kind == "evaluation" and event.get("quality") is not None:
            run.evaluations += 1
            run.epoch, run.seconds = event.get("epoch"), event.get("seconds")
            run.quality, run.band = float(event["quality"]), self.bands.get(run.evaluations)
        return run

    def name_of(self, run: RunProgress) -> str:
        return f"run {run.index + 1} {self.names.get(run.index, '')}".rstrip()


STATUS_STYLES = {"reached": "bold green", "cancelled": "yellow"}
# Phases before the first quality, which take minutes with some models.
PREPARING = {
    "compile": "compiling, on made-up data",
    "warmup": "warming up, on made-up data",
    "data": "reading the data",
}
BAR_WIDTH = 16  # One run's line fits a terminal of 80 columns.


@contextmanager
def replay_screen(screen: Screen, progress: ReplayProgress) -> Iterator[Show]:
    """Yield a function that shows an event of the training, until the block ends."""
    if screen.as_json or not screen.console.is_terminal:
        yield lambda event: _say(screen, progress, event)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(BAR_WIDTH),
        TextColumn("{task.fields[line]}"),
    )
    with Progress(*columns, console=screen.console) as bars:
        tasks: dict[int, TaskID] = {}

        def show(event: View) -> None:
            run = progress.take_event(event)
            if run.index not in tasks:
                tasks[run.index] = bars.add_task(progress.name_of(run), total=1.0, line="")
            way = share_of_way(progress.target, run.quality)
            bars.update(tasks[run.index], completed=way, line=line_of(run, progress).markup)

        yield show


def _say(screen: Screen, progress: ReplayProgress, event: View) -> None:
    run = progress.take_event(event)
    prepares = event.get("phase") in PREPARING and run.epoch is None
    if prepares or event.get("kind") in ("evaluation", "run_finished"):
        line = line_of(run, progress) if run.status is None else ending_of(run, progress)
        screen.say(Text(f"  {progress.name_of(run)}  ").append_text(line))


def line_of(run: RunProgress, progress: ReplayProgress) -> Text:
    text, target = Text(), progress.target
    if run.epoch is not None:
        quality = quality_text(run.quality, target.unit, target=target.value)
        text.append(f"{progress.step} {run.epoch:<5g} {quality:>8}  {seconds_text(run.seconds):>8}")
    if run.status is not None:
        return text.append("  ").append_text(ending_of(run, progress))
    if run.epoch is None:
        return text.append(PREPARING.get(run.phase or "", run.phase or "waiting"), style="dim")
    if run.band is not None and run.quality is not None:
        lower, upper = run.band
        if run.quality < lower:
            text.append("  below", style="bold red")
        elif run.quality > upper:
            text.append("  above", style="bold yellow")
        else:
            text.append("  inside", style="green")
        # A band computed from a spread may pass the highest quality.
        highest = min(upper, UNITS.get(target.unit) or upper)
        text.append(f" {max(0.0, lower):.2f}..{highest:.2f}", style="dim")
    return text


def ending_of(run: RunProgress, progress: ReplayProgress) -> Text:
    status, budget = run.status or "ended", progress.target.budget_seconds
    words = {"reached": "reached the target", "not_reached": "did not reach it"}
    if budget is not None:
        within = f"within {budget:g} s"
        words = {"reached": f"counts {within}", "not_reached": f"no evaluation {within}"}
    told = words.get(status, status.replace("_", " "))
    return Text(told, style=STATUS_STYLES.get(status, "bold red"))


def watch_verification(server: ServerClient, view: View, screen: Screen) -> dict[str, Any]:
    """Show a verification's replay until it ends. Returns its last view. Raises CliError."""
    # A person who stops watching reads here where it goes on.
    screen.say(f"Verification {view['id']}: {server.url}/verifications/{view['id']}")
    step = "evaluation" if is_in_box(str(view.get("kind"))) else "epoch"
    names = ("metric", "value", "unit", "direction", "budget_seconds")
    target = QualityTarget(**{name: view["target"].get(name) for name in names})
    progress = ReplayProgress(target=target, step=step)
    try:
        return _watch(server, view, screen, progress)
    except (KeyboardInterrupt, SystemExit):
        if not screen.as_json:
            again = f"finishline verify {view['id']} --watch"
            open_console(stderr=True).print(f"It goes on. Follow it again: {again}", soft_wrap=True)
        raise


def _watch(
    server: ServerClient, view: View, screen: Screen, progress: ReplayProgress
) -> dict[str, Any]:
    said: set[str] = set()
    with ExitStack() as shown:
        show: Show | None = None
        path = f"/verifications/{segment(str(view['id']))}/events"
        for event in follow_events(partial(server.stream, path)):
            if event.name == "end":
                return _table_of(event)
            if event.name == "state":
                state = _table_of(event)
                progress.bands = {
                    int(point["index"]): (float(point["lower"]), float(point["upper"]))
                    for point in state.get("control_points") or []
                }
                sides = enumerate((state.get("head_to_head") or {}).get("order") or ())
                controls = dict.fromkeys(state.get("control_runs") or (), "shortcut test")
                repeats = dict.fromkeys(state.get("repeat_runs") or (), "repeat")
                progress.names = dict(sides) | controls | repeats
                if (sentence := state.get("waiting_for")) and sentence not in said:
                    said.add(sentence)
                    screen.say(f"  {sentence}")
                for line in _ended_attempts(state):
                    if line not in said:
                        said.add(line)
                        screen.say(f"  {line}")
            elif event.name == "replay":
                show = show or shown.enter_context(replay_screen(screen, progress))
                show(_table_of(event))
    raise CliError(
        "The server ended the stream of events without a verdict; "
        f"see it at {server.url}/verifications/{view.get('id')}.",
        exit_code=ExitCode.SERVER,
    )


def _ended_attempts(state: View) -> Iterator[str]:
    """Say why attempts ended early. The runs that follow begin again with the first."""
    for attempt in state.get("attempts") or ():
        if failure := attempt.get("failure"):
            why = str(failure.get("message")).rstrip(".")
            yield f"Attempt {attempt.get('number')} ended early: {why}. {failure.get('next_step')}"


def _table_of(event: ServerEvent) -> dict[str, Any]:
    table = event.json()
    if not isinstance(table, dict):
        raise CliError(
            f"The server sent an event {event.name!r} that is not a JSON object.",
            exit_code=ExitCode.SERVER,
        )
    return table


def verdict_code(view: View) -> ExitCode:
    """Return 0 if verified or the head-to-head has an answer, 4 if every worker failed."""
    codes = {reason.get("code") for reason in view.get("reasons") or []}
    if view.get("state") == "failed" and codes == {"infrastructure"}:
        return ExitCode.SERVER
    answers = ("challenger_faster", "not_proven") if view.get("head_to_head") else ("verified",)
    return ExitCode.OK if view.get("outcome") in answers else ExitCode.NOT_VERIFIED
