"""Score speedruns: the records of NanoGPT, and logs that a pattern of yours reads."""

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from finishline.cli.errors import CliError, UsageError
from finishline.cli.records import open_archive
from finishline.cli.screen import open_console
from finishline.rules.archive.nanogpt import TRACK_1, Target, find_folders, score_folder
from finishline.rules.archive.score import Record
from finishline.rules.benchmarks.quality import Direction
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.steps import NANOGPT, compile_pattern
from finishline.rules.text import count_text

PATTERN_SECONDS = 30.0  # For the logs of one folder.
EXAMPLE = r"--pattern 'step:(?P<step>\d+).*val_loss:(?P<quality>[\d.]+).*train_time:(?P<ms>\d+)ms'"


def score_nanogpt(paths: list[Path], pattern: str | None, target: str | None) -> Iterator[Record]:
    """Yield the record of each folder with logs. Raises CliError for a folder without logs."""
    try:
        compiled = NANOGPT if pattern is None else compile_pattern(pattern)
    except LogFormatError as error:
        raise UsageError(f"{error}. Hint: {EXAMPLE}") from error
    asked = None if target is None else _target(target)
    for path in paths:
        archive = open_archive(path)
        folders = find_folders(archive)
        if not folders:
            raise CliError(
                f"No log found at {path}. Expected a folder with logs (*.txt, *.log, *.out, "
                "*.stdout) such as records/track_1_short/2026-07-17_FP8DownProjection/this_pr."
            )
        outside = [folder for folder in folders if folder.track is None]
        if outside and compiled is NANOGPT and asked is None:
            count, value = count_text(len(outside), "folder"), TRACK_1.value
            told = f"{count} outside a track, scored as track 1 (at most {value}): {outside[0].id}"
            hint = "Hint: --target sets another, and records/track_2_medium/... names a track."
            open_console(stderr=True).print(f"{told}. {hint}", soft_wrap=True)
        for folder in folders:
            with _limit(PATTERN_SECONDS if pattern else 0.0, folder.id):
                scored = score_folder(folder, archive, pattern=compiled, target=asked)
            yield scored.record


def _target(text: str) -> Target:
    """Read a target such as `3.28` (at most), `<=3.28` or `>=94`."""
    direction: Direction = "higher" if text.startswith(">=") else "lower"
    try:
        value = float(text.removeprefix(">=").removeprefix("<="))
    except ValueError:
        value = math.nan
    if math.isfinite(value):
        return Target(value, direction)
    expected = "a number such as 3.28 (at most), or '>=94' (at least)"
    raise UsageError(f"--target {text!r}: expected {expected}.")


@contextmanager
def _limit(seconds: float, name: str) -> Iterator[None]:
    """Stop an endless pattern. 0 switches the limit off."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise CliError(
            f"The pattern took more than {seconds:g} s for the logs of {name}. Hint: write it "
            r"without nested repetition, for example \d+ and not (\d+)+."
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
