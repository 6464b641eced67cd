"""Score records of the NanoGPT speedrun: a folder of logs each, by the rule of its track.

Track 1: the mean loss is at most 3.28 with p < 0.01 (one-sided one-sample t-test). Track 2: the
mean loss is at most 2.92. Track 3: (3.28 - mean) * sqrt(runs) is at least 0.004.
Source: modded-nanogpt, README.md and records/track_3_optimization/README.md.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.archive.files import (
    Archive,
    ArchiveFile,
    Place,
    Problems,
    find_identical,
    shown,
)
from finishline.rules.benchmarks.quality import Direction
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.steps import NANOGPT, TIMED, Step, read_steps
from finishline.rules.run import Evaluation, Run
from finishline.rules.scoring.violations import FIXED_STOP_P_VALUE, find_violations
from finishline.rules.statistics.aggregate import mean, standard_deviation
from finishline.rules.statistics.gaps import p_value_of_mean_beyond

SUFFIXES = (".txt", ".log", ".out", ".stdout")
RECORDS = "records"
SEVERAL_STOPS = "several_stops"
BOARDS = {"track_1_short": "nanogpt", "track_2_medium": "nanogpt-medium"}


@dataclass(frozen=True)
class Target:
    """A quality to reach, and how a mean shows it: from the mean, the p-value and the runs."""

    value: float
    direction: Direction = "lower"
    is_reached: Callable[[float, float, int], bool] = lambda _, p_value, __: (
        p_value < FIXED_STOP_P_VALUE
    )


# Track 3 assumes a standard deviation of 0.0013 and wants p < 0.001.
TRACKS = {
    "track_1_short": Target(3.28),
    "track_2_medium": Target(2.92, is_reached=lambda found, _, __: found <= 2.92),
    "track_3_optimization": Target(
        3.28, is_reached=lambda found, _, runs: round((3.28 - found) * math.sqrt(runs), 9) >= 0.004
    ),
}
TRACK_1 = TRACKS["track_1_short"]


@dataclass
class Folder:
    """The logs of one record, in the folder `place`."""

    id: str
    place: Place
    logs: list[ArchiveFile] = field(default_factory=list)

    @property
    def track(self) -> str | None:
        """Return the folder of its track, if it is in one."""
        return next((part for part in reversed(self.place) if part in TRACKS), None)


def find_folders(archive: Archive) -> list[Folder]:
    """Find each folder that holds logs directly, with its path below `records` as id."""
    folders: dict[Place, Folder] = {}
    for file in archive.files.values():
        if file.name.lower().endswith(SUFFIXES):
            place = file.place[:-1]
            if place not in folders:
                folders[place] = Folder(_id_of(file), place)
            folders[place].logs.append(file)
    return sorted(folders.values(), key=lambda folder: folder.id)


def _id_of(file: ArchiveFile) -> str:
    place = file.place[:-1]
    if RECORDS in place:
        last = len(place) - 1 - place[::-1].index(RECORDS)
        return shown("/".join(place[last + 1 :])) or RECORDS
    return file.path.rpartition("/")[0] or shown(place[-1])


@dataclass(frozen=True)
class Scored:
    """The record of a folder, and the logs with its runs."""

    record: dict[str, Any]
    logs: list[ArchiveFile]


def score_folder(
    folder: Folder,
    archive: Archive,
    *,
    pattern: re.Pattern[bytes] = NANOGPT,
    target: Target | None = None,
) -> Scored:
    """Score a folder by a target, by default by the rule of its track, else of track 1.

    `reached` is None for one run, several stop steps (of several experiments), a log with an error,
    or a pattern without a target. `ranked` is by the board of its track, and track 2 ranks a single
    run.
    """
    problems = Problems()
    runs = _read_runs(folder, archive, pattern, problems)
    if target is None and pattern is NANOGPT:
        target = TRACKS.get(folder.track or "", TRACK_1)
    last = [run[-1] for _, run in runs]
    losses = [each.quality for each in last]
    seconds = [each.seconds for each in last if each.seconds is not None]
    is_timed = len(seconds) == len(last)
    steps = sorted({each.step for each in last if each.step is not None})
    if len(steps) > 1:
        message = f"{len(steps)} stop steps, from {steps[0]} to {steps[-1]}"
        expected = "one step where all runs stop"
        problems.add(SEVERAL_STOPS, message, folder.id, "step", expected)
        losses = seconds = []
    for file, run in runs if len(steps) < 2 else ():
        if run[-1].seconds is None:
            problems.warn("no_time", "no time", file.path, "train_time", TIMED, line=run[-1].line)
    p_value = reached = None
    if target is not None and losses:
        p_value = p_value_of_mean_beyond(losses, target.value, direction=target.direction)
    if target is not None and p_value is not None and not problems.has_error:
        reached = target.is_reached(mean(losses), p_value, len(losses))
    several = len(losses) > 1
    record = {
        "id": folder.id,
        "runs": len(runs),
        "mean_seconds": mean(seconds) if seconds and is_timed else None,
        "sd_seconds": standard_deviation(seconds, ddof=1) if several and is_timed else None,
        "mean_loss": mean(losses) if losses else None,
        "sd_loss": standard_deviation(losses, ddof=1) if several else None,
        "p_value": p_value,
        "stop_step": steps[0] if len(steps) == 1 else None,
        "reached": reached,
        "ranked": _is_ranked(folder, runs) and is_timed and not problems.has_error,
        "problems": problems.records,
    }
    return Scored(record, list(dict.fromkeys(file for file, _ in runs)))


def _is_ranked(folder: Folder, runs: Sequence[tuple[ArchiveFile, list[Step]]]) -> bool:
    if folder.track not in BOARDS or not runs:
        return False
    of_board = []
    for file, (*_, at) in runs:
        last = Evaluation(at.step, at.seconds or 0.0, at.quality, line=at.line)
        of_board.append(Run(file.path, "speedrun", (last,)))
    board = shipped_definition(BOARDS[folder.track])
    return not find_violations(of_board, board, division="open", archive=True)


def _read_runs(
    folder: Folder, archive: Archive, pattern: re.Pattern[bytes], problems: Problems
) -> list[tuple[ArchiveFile, list[Step]]]:
    """Read the runs of all logs of a folder. A repeated run counts once."""
    identical = find_identical(archive, folder.logs)
    runs: dict[tuple[Any, ...], tuple[ArchiveFile, list[Step]]] = {}
    unread: list[LogFormatError] = []
    for file in folder.logs:
        try:
            found = read_steps(archive.chunks(file), name=file.path, pattern=pattern)
        except LogFormatError as error:
            if error.code == "no_steps":
                unread.append(error)
            else:
                problems.report(error)
            continue
        for run in found:
            end = run[-1][:3]
            first, other = runs.setdefault(end, (file, run))
            if other is run:
                continue
            if file.path in identical or 1 in (len(run), len(other)) or run == other:
                message, expected = (
                    f"the same run as in {first.path}",
                    "a separate log for every run",
                )
                problems.warn("same_run", message, file.path, expected=expected)
            else:
                runs[*end, file.path] = file, run
    # Folders also hold notes and errors of their runs. They count only if runs are missing.
    for each in unread:
        problems.report(each, severity="warning" if runs else "error")
    return list(runs.values())


@dataclass(frozen=True)
class Row:
    """A record in the table of the archive's README: its title, day and contributors."""

    title: str
    day: date | None
    holder: str | None


_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_LOG = re.compile(r"\((?:[^)]*/)?records/([^)]+)\)")
_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})[_-]?(.*)")


def read_table(text: str) -> dict[str, Row]:
    """Read the records in a README's tables, by the folder of their log and by the log's name."""
    rows: dict[str, Row] = {}
    for line in text.splitlines():
        cells = re.split(r"\s*\|\s*", line.strip(" |"))
        log = _LOG.search(line)
        if log is None or len(cells) < 6 or not cells[0].isdigit():
            continue
        day = None
        with suppress(ValueError):
            day = datetime.strptime(cells[3], "%m/%d/%y").date()  # noqa: DTZ007 - a day
        holder = _LINK.sub(r"\1", cells[5]).strip(" ,|")
        row = Row(_LINK.sub(r"\1", cells[2]), day, holder if "@" in holder else None)
        folder, _, name = log[1].rpartition("/")
        keys = (folder, name) if name.endswith(SUFFIXES) else (log[1].strip("/"),)
        for key in keys:
            rows.setdefault(key, row)
    return rows


# Folders near a record with the runs it was compared with.
_COMPARED = re.compile(r"baseline|master|prior", re.IGNORECASE)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_/]")


def row_of(folder: Folder, rows: Mapping[str, Row]) -> Row | None:
    """Return the title, day and holder of a record in the README's table.

    Without a table the folder's name has them. None for a baseline or an unlisted folder.
    """
    keys = (folder.id, *(log.name for log in folder.logs))
    row = next((rows[key] for key in keys if key in rows), None)
    above, _, own = folder.id.rpartition("/")
    if row is None and (_COMPARED.search(own) or (rows and above not in rows)):
        return None
    dated = next((found for part in folder.place if (found := _DAY.fullmatch(part))), None)
    named = folder.id.partition("/")[2] or folder.id
    day = None
    if dated:
        with suppress(ValueError):
            day = date.fromisoformat(dated[1])
    if dated and dated[2]:
        named = named.replace(dated[0], dated[2])
    if row is None and above in rows:  # The table links to the folder of several.
        row = replace(rows[above], title=f"{rows[above].title} ({own.replace('_', ' ')})")
    if row is None:
        return Row(_WORD.sub(" ", named), day, None)
    return Row(row.title, row.day or day, row.holder)


def read_readme(archive: Archive, root: Place) -> dict[str, Row]:
    """Read the table of README.md in the archive's folder, or in the folder of its records."""
    place = root[: root.index(RECORDS)] if RECORDS in root else root
    file = archive.find((*place, "README.md"))
    if file is None:
        return {}
    with suppress(LogFormatError):
        return read_table(archive.small(file).decode(errors="replace"))
    return {}
