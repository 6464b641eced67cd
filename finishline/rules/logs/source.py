"""Logs of other tools made into run logs: what they tell is kept, nothing is made up."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_evaluation import MAX_COUNT
from finishline.rules.logs.mllog_record import MAX_TIME_MS
from finishline.rules.logs.mllog_write import mllog_line
from finishline.rules.text import did_you_mean

EPOCH, STEP = "epoch", "step"
LARGEST = sys.float_info.max
MOST_NAMES_SHOWN = 20


@dataclass(frozen=True)
class SourceRow:
    """Numbers that a tool wrote at one moment, by their names, NaN and infinities among them.

    `words` are texts in place of a number. `seconds` is None without a time, `line` where the
    source has none.
    """

    values: Mapping[str, float]
    seconds: float | None = None
    line: int | None = None
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Converted:
    """A run log, the number of its evaluations, and what the source does not tell."""

    text: bytes
    evaluations: int
    quality: str
    epochs_from: str
    unknown: tuple[str, ...]


def convert_rows(
    rows: Sequence[SourceRow],
    *,
    file: str,
    benchmark: Benchmark,
    quality: str | None,
    scale: float,
    seed: int | None,
    start_seconds: float | None,
) -> Converted:
    """The run log of the rows that have the quality, times `scale`.

    The epoch of a row is its own, else the one told at its step, else its step. Raises
    LogFormatError where the quality, the epochs or the times are not there, or go back.
    """
    name = _quality_name(rows, quality, benchmark, file=file)
    _refuse_words(rows, name, file=file)
    found = [row for row in rows if name in row.values]
    if any(row.seconds is None for row in found):
        raise LogFormatError(
            "time unknown: the source does not say when its evaluations were made",
            file=file,
            expected="a time for each evaluation; name its column with --time",
            code="time_unknown",
        )
    by_step = {
        row.values[STEP]: row.values[EPOCH] for row in rows if {STEP, EPOCH} <= {*row.values}
    }
    first_ms = (found[0].seconds or 0.0) * 1000
    start_ms = first_ms if start_seconds is None else start_seconds * 1000
    if start_ms > first_ms:
        message = "the start lies after the first evaluation"
        raise LogFormatError(message, file=file, expected="an earlier --start")
    lines = [mllog_line("submission_benchmark", benchmark.log_names[0], time_ms=start_ms)]
    if seed is not None:
        lines.append(mllog_line("seed", seed, time_ms=start_ms))
    if start_seconds is not None:
        lines.append(mllog_line("run_start", time_ms=start_ms, kind="INTERVAL_START"))
    told_by = set()
    before = -math.inf
    for row in found:
        epoch, where = _epoch_of(row, by_step, file=file)
        told_by.add(where)
        time_ms = (row.seconds or 0.0) * 1000
        if time_ms < before:
            raise LogFormatError(
                f"the times go back from {before / 1000:g} to {time_ms / 1000:g} s",
                file=file,
                expected="the evaluations of one run, in order",
            )
        before = time_ms
        metadata = {"epoch_num": epoch}
        value = scale * row.values[name]
        _refuse_impossible(row, epoch, where, time_ms, value, name, file=file)
        lines.append(mllog_line("eval_accuracy", value, time_ms=time_ms, metadata=metadata))
    unknown = [] if start_seconds is not None else ["run_start"]
    unknown += ["run_stop"] if seed is not None else ["run_stop", "seed"]
    return Converted(
        text=b"".join(lines),
        evaluations=len(found),
        quality=name,
        epochs_from=" and ".join(sorted(told_by)),
        unknown=tuple(unknown),
    )


def _refuse_impossible(
    row: SourceRow, epoch: float, where: str, time_ms: float, value: float, name: str, *, file: str
) -> None:
    """Raise LogFormatError for an evaluation that no run log holds."""
    at = f" at {where} {epoch:g}" if row.line is None else ""
    for name_of, found, least, most in (
        (where, epoch, 0.0, MAX_COUNT),
        ("time", time_ms / 1000, 0.0, MAX_TIME_MS / 1000),
        (name, value, -LARGEST, LARGEST),
    ):
        if not least <= found <= most:
            expected = f"a number from {least:g} to {most:g}"
            raise LogFormatError(
                f"got {found:g}{at}", file=file, line=row.line, field=name_of, expected=expected
            )


def read_moment(text: str) -> float | None:
    """Seconds that a text tells: a number as it is, or an ISO date as seconds since 1970.

    A date without a zone is in UTC. None for any other text.
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def names_in(rows: Iterable[SourceRow]) -> list[str]:
    """Every name that a row has a number for, in order."""
    return list(dict.fromkeys(name for row in rows for name in row.values))


def _quality_name(
    rows: Sequence[SourceRow], asked: str | None, benchmark: Benchmark, *, file: str
) -> str:
    """The name asked for, else the benchmark's metric, else the only one there is."""
    names = [name for name in names_in(rows) if name not in (EPOCH, STEP)]
    shown = ", ".join(name[:80] for name in names[:MOST_NAMES_SHOWN]) or "no number at all"
    if asked is not None:
        if asked in names:
            return asked
        message = f"no quality {asked[:80]!r}{did_you_mean(asked, names)}"
        raise LogFormatError(message, file=file, expected=f"one of {shown}")
    metric = benchmark.target.metric.casefold()
    candidates = [name for name in names if name.casefold() == metric] or names
    if len(candidates) != 1:
        raise LogFormatError(
            f"{len(candidates)} names that may be the quality",
            file=file,
            expected=f"one chosen with --quality from {shown}",
        )
    return candidates[0]


def _refuse_words(rows: Sequence[SourceRow], name: str, *, file: str) -> None:
    """Raise LogFormatError for an evaluation whose quality is a text."""
    for row in rows:
        if name in row.words:
            raise LogFormatError(
                f"{row.words[name][:60]!r} is no number",
                file=file,
                line=row.line,
                field=name,
                expected="a number, or an empty cell",
            )


def _epoch_of(row: SourceRow, by_step: Mapping[float, float], *, file: str) -> tuple[float, str]:
    if EPOCH in row.values:
        return row.values[EPOCH], EPOCH
    step = row.values.get(STEP)
    if step is None:
        message = "an evaluation without an epoch or a step"
        raise LogFormatError(message, file=file, expected="a column epoch or step")
    return (by_step[step], EPOCH) if step in by_step else (step, STEP)
