"""DAWNBench files: an entry is a JSON and, for training, a TSV of the same name beside it.

Source: dawn-bench-entries README and the entries it published.
"""

import itertools
import re
from collections.abc import Callable, Sequence

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.dawnbench_entry import UTF8_MARK, DawnbenchEntry, parse_entry, read_entry
from finishline.rules.logs.lines import MAX_MLLOG_LINE_BYTES
from finishline.rules.logs.text import refuse_long_lines
from finishline.rules.run import Evaluation, Run
from finishline.rules.text import count_text, refuse_utf16

__all__ = [
    "DawnbenchEntry",
    "parse_curve",
    "parse_entry",
    "read_curve",
    "read_entry",
]

COLUMNS = {
    "top1Accuracy": {"epoch", "hours", "top1Accuracy"},
    "top5Accuracy": {"epoch", "hours", "top1Accuracy", "top5Accuracy"},
    "f1Score": {"epoch", "hours", "f1Score"},
}
LARGEST = {"percent": 100.0, "fraction": 1.0}
MAX_HOURS = 1e6
MAX_ROWS = 100_000

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


def parse_curve(content: bytes, *, name: str, metric: str, unit: str) -> Run:
    """The run in a training TSV; `unit` is percent or fraction.

    Columns are read by name and may stand in any order; seconds = hours * 3600, in file order.
    Raises LogFormatError naming file, line, field and expectation.
    """
    problems: list[LogFormatError] = []
    run = read_curve(content, name=name, metric=metric, unit=unit, report=problems.append)
    if run is None:
        raise problems[0]
    return run


def read_curve(
    content: bytes,
    *,
    name: str,
    metric: str,
    unit: str,
    report: Callable[[LogFormatError], None],
) -> Run | None:
    """As `parse_curve`, but every problem is reported, and the answer is None if there is one."""
    problems: list[LogFormatError] = []
    evaluations: list[Evaluation] = []
    try:
        lines = _lines(content, name)
        header = _header(lines, name, metric)
        if len(lines) == 1:
            raise LogFormatError(
                "no rows below the header", file=name, line=1, expected="evaluations"
            )
        for number, line in enumerate(lines[1:], start=2):
            try:
                evaluations.append(_evaluation(line, number, header, name, metric))
            except LogFormatError as error:
                problems.append(error)
        _refuse_decreasing_hours(evaluations, name)
        if evaluations:
            _refuse_other_unit(evaluations, name, metric, unit)
    except LogFormatError as error:
        problems.append(error)
    for problem in problems:
        problem.code = problem.code or "bad_tsv"
        report(problem)
    return None if problems else Run(name, clock="dawnbench", evaluations=tuple(evaluations))


def _lines(content: bytes, name: str) -> list[str]:
    refuse_long_lines(content, file=name, limit=MAX_MLLOG_LINE_BYTES)
    text = content.removeprefix(UTF8_MARK)
    if (rows := text.count(b"\n")) > MAX_ROWS:
        raise LogFormatError(f"{rows:,} lines", file=name, expected=f"at most {MAX_ROWS:,} lines")
    refuse_utf16(content, file=name, error=LogFormatError)
    try:
        lines = text.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise LogFormatError("not UTF-8", file=name, line=line, expected="UTF-8 text") from error
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("\t")]


def _header(lines: list[str], name: str, metric: str) -> list[str]:
    if metric not in COLUMNS:
        raise LogFormatError(
            f"DAWNBench has no curve of {metric}", file=name, expected=" or ".join(COLUMNS)
        )
    columns = _cells(lines[0]) if lines else []
    if set(columns) != COLUMNS[metric] or len(columns) != len(COLUMNS[metric]):
        raise LogFormatError(
            f"the header has {', '.join(repr(column[:40]) for column in columns[:8]) or 'nothing'}",
            file=name,
            line=1,
            field="header",
            expected=", ".join(sorted(COLUMNS[metric])) + ", in any order, with a tab between",
        )
    return columns


def _evaluation(line: str, number: int, header: list[str], name: str, metric: str) -> Evaluation:
    cells = _cells(line)
    if len(cells) != len(header):
        raise LogFormatError(
            count_text(len(cells), "cell"),
            file=name,
            line=number,
            expected=f"{count_text(len(header), 'cell')} with a tab between, as in the header",
        )
    row = {
        column: _number(cell, file=name, line=number, field=column)
        for column, cell in zip(header, cells, strict=True)
    }
    if row["hours"] > MAX_HOURS:
        raise LogFormatError(
            f"{row['hours']} hours",
            file=name,
            line=number,
            field="hours",
            expected=f"at most {MAX_HOURS:g}",
        )
    return Evaluation(
        epoch=row["epoch"], seconds=row["hours"] * 3600, quality=row[metric], line=number
    )


def _number(cell: str, *, file: str, line: int, field: str) -> float:
    number = float(cell) if _NUMBER.fullmatch(cell) else -1.0
    if not 0 <= number < float("inf"):
        raise LogFormatError(
            f"{cell[:40]!r}",
            file=file,
            line=line,
            field=field,
            expected="a finite number of at least 0",
        )
    return number


def _refuse_decreasing_hours(evaluations: Sequence[Evaluation], name: str) -> None:
    for earlier, later in itertools.pairwise(evaluations):
        if later.seconds < earlier.seconds:
            raise LogFormatError(
                f"hours went from {earlier.seconds / 3600:g} to {later.seconds / 3600:g}",
                file=name,
                line=later.line,
                field="hours",
                expected="hours that do not decrease",
                code="hours_decrease",
            )


def _refuse_other_unit(
    evaluations: Sequence[Evaluation], name: str, metric: str, unit: str
) -> None:
    """Fractions where percent is the rule show when no value is above 1; percent at the first."""
    best = max(evaluations, key=lambda evaluation: evaluation.quality)
    if best.quality > LARGEST[unit]:
        first = next(item for item in evaluations if item.quality > LARGEST[unit])
        raise LogFormatError(
            f"{first.quality:g}",
            file=name,
            line=first.line,
            field=metric,
            expected=f"a {unit} from 0 to {LARGEST[unit]:g}",
            code="wrong_unit",
        )
    if unit == "percent" and best.quality <= 1:
        raise LogFormatError(
            f"no value above {best.quality:g}: fractions where percent is the rule",
            file=name,
            line=best.line,
            field=metric,
            expected="percent, from 0 to 100",
            code="wrong_unit",
        )
