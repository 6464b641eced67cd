"""Calibrations as tables and lines, and followed to their end."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.screen import Screen
from finishline.cli.tables import ABSENT, make_table, number_text
from finishline.rules.benchmarks.benchmark import ReferenceRun
from finishline.rules.text import count_text
from finishline.rules.verification.bands import reference_run_toml


def calibration_table(calibrations: Sequence[View]) -> RenderableType:
    """The calibrations of a server."""
    if not calibrations:
        return Text("No calibrations yet. Start one with `finishline calibrate`.", style="dim")
    names = ("calibration", "benchmark", "version", "state", "runs", "sizes", "precision")
    table = make_table(*names, "adopted")
    for item in calibrations:
        table.add_row(
            str(item["id"]),
            str(item["benchmark"]),
            str(item["version"]),
            str(item["state"]),
            f"{item['runs_finished']}/{item['runs_planned']}",
            ", ".join(str(size) for size in item["batch_sizes"]),
            str(item.get("precision") or ABSENT),
            str(item["adopted_at"] or ABSENT),
        )
    return table


def calibration_lines(view: View) -> list[RenderableType]:
    """One calibration: its state, and epochs to converge by batch size."""
    if view.get("outdated"):
        judges = ", for an earlier definition: not used for new replays"
    else:
        judges = ", used for new replays" if view["judges"] else ""
    precision = f" in {view['precision']}" if view.get("precision") else ""
    header = (
        f"Calibration {view['id']}: number {view['version']} of {view['benchmark']}{precision}, "
        f"{view['state']}, {view['runs_finished']} of {count_text(view['runs_planned'], 'run')}"
        f"{judges}"
    )
    why = dict.fromkeys(chunk["why"] for chunk in view.get("chunks", ()) if chunk.get("why"))
    failed = [Text(f"Failed {sentence}", style="red") for sentence in why]
    return [Text(header, style="bold"), size_table(view["sizes"]), *failed]


def size_table(sizes: Sequence[View]) -> Table:
    """Epochs to the target by batch size."""
    right = ("batch size", "runs", "reached", "epochs", "stdev", "band")
    table = make_table(*right, right=right)
    for size in sizes:
        table.add_row(
            str(size["batch_size"]),
            f"{size['finished']}/{size['planned']}",
            str(size["reached"]),
            number_text(size["mean"], digits=2),
            number_text(size["stdev"], digits=2),
            count_text(len(size["band"]), "point") if size["band"] else ABSENT,
        )
    return table


def comparison_table(view: View) -> RenderableType:
    """Two calibrations by batch size: means, difference, and whether it is more than noise."""
    if not view["sizes"]:
        return Text("No batch size in common.", style="dim")
    right = ("batch size", "first", "second", "difference", "p", "band apart")
    table = make_table(*right, right=right)
    for size in view["sizes"]:
        gaps = [abs(point["mean_difference"]) for point in size["band"]]
        table.add_row(
            str(size["batch_size"]),
            number_text(size["first"]["mean"], digits=2),
            number_text(size["second"]["mean"], digits=2),
            number_text(size["difference"], digits=2),
            number_text(size["p_value"], digits=4),
            number_text(max(gaps) if gaps else None, digits=2),
        )
    return table


def calibration_toml(view: View) -> Iterable[str]:
    """The runs that went to their end as the `[[reference_runs]]` of a benchmark file."""
    yield (
        f"# Calibration {view['id']} of {view['benchmark']}, version {view['version']},\n"
        f"# requested on {str(view['created_at'])[:10]}; runs {view['runs_sha256']}."
    )
    for made_on in sorted({_made_on(run["system"]) for run in view["runs"]}):
        yield f"# Made on {made_on}."
    for run in view["runs"]:
        if run["status"] in ("reached", "not_reached"):
            quality = tuple(float(value) for value in run["quality"])
            yield "\n" + reference_run_toml(
                ReferenceRun(batch_size=run["batch_size"], seed=run["seed"], quality=quality)
            )


def _made_on(system: View) -> str:
    software = ", ".join(f"{name} {found}" for name, found in sorted(system["software"].items()))
    return " ".join(f"{system['processor']}, {software}".split())


POLL_SECONDS = 1.0
Show = Callable[[View], None]


def watch_calibration(
    server: ServerClient,
    view: View,
    screen: Screen,
    *,
    wait: Callable[[float], None] = time.sleep,
) -> View:
    """Show a calibration until nothing of it is under way; its last view. Raises CliError."""
    with progress_screen(screen) as show:
        show(view)
        while view["state"] == "running":
            wait(POLL_SECONDS)
            view = server.get(f"/calibrations/{segment(str(view['id']))}")
            show(view)
    return view


def runs_trained(view: View) -> int:
    """Runs that are finished, and those of chunks under way that are trained already."""
    return sum(int(size["finished"]) + int(size["under_way"]) for size in view["sizes"])


@contextmanager
def progress_screen(screen: Screen) -> Iterator[Show]:
    """Something that shows how far a calibration is."""
    if screen.as_json or not screen.console.is_terminal:
        yield _line_by_line(screen)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=screen.console) as progress:
        bars = {}

        def show(view: View) -> None:
            for size in view["sizes"]:
                name = f"batch size {size['batch_size']}"
                if name not in bars:
                    bars[name] = progress.add_task(name, total=size["planned"])
                trained = size["finished"] + size["under_way"]
                progress.update(bars[name], completed=trained, total=size["planned"])

        yield show


def _line_by_line(screen: Screen) -> Show:
    said: list[int] = []

    def show(view: View) -> None:
        trained = runs_trained(view)
        if trained not in said:
            said.append(trained)
            screen.say(f"  {trained} of {count_text(view['runs_planned'], 'run')} trained")

    return show
