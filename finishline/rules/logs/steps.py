r"""Read logs of speedruns: one line of text for each evaluation, found by a pattern.

For example `step:1385/1385 val_loss:3.2785 train_time:79712ms step_avg:57.55ms`.
Source: modded-nanogpt, records. Its oldest logs have `s:19560 tel:3.2722`, still untimed.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.text import refuse_other_content
from finishline.rules.run import Evaluation, Run
from finishline.rules.text import shown

GROUPS = ("step", "quality", "ms", "seconds")
NANOGPT = re.compile(
    rb"\s*(?:step|s):(?P<step>\d+)(?:/\d+)?\s(?:.*\s)?(?:val_loss|tel):(?P<quality>\S+)"
    rb"(?:\s(?:.*\s)?train_time:(?:(?P<ms>\S+)ms|(?P<seconds>\S+)s)(?!\S))?"
)
FIELDS = {"quality": "val_loss", "ms": "train_time", "seconds": "train_time"}
TIMED = "train_time:79712ms in each line of an evaluation"
# A training script comes before its run, and a line of = ends it. Its text is skipped.
CODE = (b"import ", b"from ", b"def ", b"class ")
END_OF_CODE = re.compile(rb"={3,}\s*")
LONGEST_LINE = 4096
LARGEST = 1e15  # Of a figure of a training.
MOST_EVALUATIONS = 100_000


class Step(NamedTuple):
    """One evaluation. `step` and `seconds` are None where the line omits them."""

    step: int | None
    seconds: float | None
    quality: float
    line: int


def compile_pattern(text: str) -> re.Pattern[bytes]:
    """Compile a pattern for evaluations. Raises LogFormatError if it can't find any quality."""
    expected = "the named groups quality and step, and for the time ms or seconds"
    try:
        pattern = re.compile(text.encode())
    except (re.error, OverflowError, RecursionError) as error:
        message = f"no regular expression: {error}"
        raise LogFormatError(message, field="--pattern", expected="one as Python reads") from error
    named = pattern.groupindex.keys()
    faults = [f"unknown group {shown(name)}" for name in sorted(named - set(GROUPS))]
    faults += [f"no group named {name}" for name in ("quality", "step") if name not in named]
    if {"ms", "seconds"} <= named:
        faults.append("both ms and seconds")
    if faults:
        raise LogFormatError(faults[0], field="--pattern", expected=expected)
    return pattern


def read_steps(
    chunks: Iterable[bytes], *, name: str, pattern: re.Pattern[bytes] = NANOGPT
) -> list[list[Step]]:
    """Find the evaluations of each run in a log. A run begins where the steps begin again.

    Scripts are skipped: text that a line of = ends, with code or less than two evaluations. The
    text is read piece by piece. Only the first 4,096 bytes of a line are searched. Raises
    LogFormatError with file, line, field and expected value.
    """
    search = pattern.match if pattern is NANOGPT else pattern.search
    found: list[tuple[int, re.Match[bytes]]] = []
    # Matches from here on are of a script. The first one may have lines of any kind.
    script: int | None = 0
    has_code = False
    for number, line in enumerate(_lines(chunks, name), 1):
        if line.startswith(CODE):
            has_code, script = True, len(found) if script is None else script
        elif script is not None and END_OF_CODE.fullmatch(line):
            if has_code or len(found) - script < 2:
                del found[script:]
            script, has_code = None, False
        elif (match := search(line)) and match["quality"] is not None:
            found.append((number, match))
            if len(found) > MOST_EVALUATIONS:
                expected = f"at most {MOST_EVALUATIONS:,} evaluations"
                raise LogFormatError("too many", file=name, line=number, expected=expected)
    if not found:
        expected = "step:100/1385 val_loss:3.2785 train_time:79712ms"
        if pattern is not NANOGPT:
            expected = f"{pattern.pattern.decode()[:200]!r} to fit at least one line"
        raise LogFormatError("no step line", file=name, expected=expected, code="no_steps")
    runs: list[list[Step]] = []
    fields = FIELDS if pattern is NANOGPT else {}
    for number, match in found:
        step = _step(match.groupdict(), number, name, fields)
        before = runs[-1][-1] if runs else None
        if before is None or _begins(step, runs[-1]):
            runs.append([step])
        elif step[:3] != before[:3]:
            _refuse_backwards(before, step, name, fields)
            runs[-1].append(step)
    return runs


def parse_steps(content: bytes, *, name: str) -> Run:
    """Read the one run in a log of NanoGPT's form, with steps as epochs.

    Its clock pauses at evaluations. Raises LogFormatError.
    """
    runs = read_steps([content], name=name)
    if len(runs) > 1:
        line = runs[1][0].line
        message, expected = f"{len(runs)} runs in one log", "a log for each run"
        raise LogFormatError(message, file=name, line=line, field="step", expected=expected)
    evaluations = []
    for each in runs[0]:
        if each.seconds is None:
            raise LogFormatError(
                "no time", file=name, line=each.line, field="train_time", expected=TIMED
            )
        epoch = None if each.step is None else float(each.step)
        evaluations.append(Evaluation(epoch, each.seconds, each.quality, line=each.line))
    return Run(name, "speedrun", tuple(evaluations))


def _lines(chunks: Iterable[bytes], name: str) -> Iterator[bytes]:
    rest, is_first = b"", True
    for chunk in chunks:
        if is_first:
            refuse_other_content(chunk, name=name)
            chunk, is_first = chunk.removeprefix(BOM_UTF8), False
        if b"\0" in chunk:
            expected = "a text"
            raise LogFormatError("a binary file", file=name, expected=expected, code="binary")
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line[:LONGEST_LINE]
        rest = rest[:LONGEST_LINE]
    if is_first:
        refuse_other_content(b"", name=name)
    if rest:
        yield rest


def _step(texts: dict[str, bytes | None], line: int, name: str, fields: dict[str, str]) -> Step:
    numbers: dict[str, float] = {}
    for group, text in texts.items():
        if text is None:
            continue
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        is_whole = group != "step" or text.isdigit()
        if not abs(number) <= LARGEST or not is_whole or (group != "quality" and number < 0):
            kind = "whole number" if group == "step" else "finite number"
            raise LogFormatError(
                f"got {shown(text.decode(errors='replace'))}",
                file=name,
                line=line,
                field=fields.get(group, group),
                expected=f"a {kind}" if group == "quality" else f"a {kind} of at least 0",
                code="not_finite" if group == "quality" else None,
            )
        numbers[group] = number
    seconds = numbers.get("seconds")
    if "ms" in numbers:
        seconds = numbers["ms"] / 1000
    step = int(numbers["step"]) if "step" in numbers else None
    return Step(step, seconds, numbers["quality"], line)


def _begins(step: Step, run: list[Step]) -> bool:
    """Whether a new run begins: its step is no later than the first of this one."""
    first, last = run[0].step, run[-1].step
    return None not in (step.step, first, last) and step.step <= first < last  # type: ignore[operator]


def _refuse_backwards(before: Step, step: Step, name: str, fields: dict[str, str]) -> None:
    """Raise LogFormatError if steps or times run backwards. Early clocks start after step 0."""
    at = {"file": name, "line": step.line, "code": "backwards"}
    if before.step is not None and step.step is not None and step.step < before.step:
        message, expected = f"step {step.step} after {before.step}", "steps that increase"
        raise LogFormatError(message, field="step", expected=expected, **at)  # type: ignore[arg-type]
    if before.seconds is None or step.seconds is None or before.step == 0:
        return
    if step.seconds < before.seconds:
        message = f"{step.seconds:g} s after {before.seconds:g} s"
        field, expected = fields.get("ms", "ms or seconds"), "a time that runs forward"
        raise LogFormatError(message, field=field, expected=expected, **at)  # type: ignore[arg-type]
