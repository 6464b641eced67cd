"""Follow a calibration to its end, with a bar in a terminal and a line for each step elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from finishline.cli.client import ServerClient, View, segment
from finishline.cli.screen import Screen
from finishline.rules.text import count_text

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
