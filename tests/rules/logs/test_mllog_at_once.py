"""Lines that are read all at once, against the same lines one by one."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rules.errors import LogFormatError
from rules.logs import mllog_lines
from rules.logs.blocks import Block
from rules.logs.mllog import read_mllog_chunks
from rules.logs.mllog_at_once import records_at_once
from rules.logs.mllog_lines import every_line, read_mllog
from rules.logs.mllog_run import COUNTED_KEYS

HEAD = ':::MLLOG {"namespace":"","event_type":"POINT_IN_TIME",'


def line(key: str = "seed", value: str = "1", time_ms: str = "5", metadata: str = "{}") -> str:
    return f'{HEAD}"time_ms":{time_ms},"key":"{key}","value":{value},"metadata":{metadata}}}'


def at_once(*lines: str) -> list[Any] | None:
    content = "\n".join(lines).encode()
    return records_at_once(list(every_line().find_in(content)), Block(content, 1))


RUN = "\n".join(
    [
        line("init_start", "null", "1000"),
        line("submission_benchmark", '"digits"', "1000"),
        line("global_batch_size", "64", "1000.5"),
        line("opt_name", '"sgd"', "1000.5"),
        line("opt_base_learning_rate", "0.02", "1000.5"),
        line("run_start", "null", "2000.25"),
        line("eval_start", "null", "3000", '{"epoch_num":1.0,"samples_count":1152}'),
        line("eval_accuracy", "15.8", "3004.5", '{"epoch_num":1.0,"samples_count":1152}'),
        line("eval_stop", "null", "3004.5", '{"epoch_num":1.0,"samples_count":1152}'),
        line("eval_start", "null", "4000", '{"epoch_num":2.0}'),
        line("eval_accuracy", "97.75", "4005", '{"epoch_num":2.0}'),
        line("eval_stop", "null", "4005", '{"epoch_num":2.0}'),
        line("run_stop", "null", "4005", '{"status":"success"}'),
    ]
)
PIECES = st.sampled_from(
    ["", '"', ":", ",", "{", "}", "[", "]", "\\", "\n", "\r", " ", "0", "-", ".5", "e9", "1e400",
     "99999999999999999999", "null", "true", "NaN", "\x01", "\xe9", ":::MLLOG", ":::MLLOG {",
     '"key":"seed",', '"value":1', '},{"key":', "},\n{", '"metadata":', "eval_error", "x" * 20_000]
)  # fmt: skip
EDITS = st.tuples(st.floats(0, 1), st.integers(0, 12), PIECES)


@st.composite
def edited_logs(draw: st.DrawFn) -> bytes:
    """The log with lines moved, left out and doubled, and with bytes of it changed."""
    lines = RUN.split("\n")
    for place, other in draw(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=2)):
        moved = lines.pop(int(place * (len(lines) - 1)))
        if other < 0.8:
            lines[int(other * len(lines)) : 0] = [moved] * draw(st.sampled_from([1, 1, 2]))
    text = "\n".join(lines)
    for place, length, piece in draw(st.lists(EDITS, max_size=3)):
        start = int(place * len(text))
        text = text[:start] + piece + text[start + length :]
    return text.encode("latin-1") + draw(st.sampled_from([b"\n", b"\n", b""]))


def outcome(content: bytes, read: Callable[..., Any]) -> tuple[Any, list[tuple[str, str | None]]]:
    """What is read from a log, and what is reported of it."""
    problems: list[LogFormatError] = []
    found = read(content, problems.append)
    return found, [(str(problem), problem.code) for problem in problems]


def records(content: bytes, report: Any) -> list[Any]:
    lines = every_line()
    found = read_mllog([content], file="f", lines=lines, counted_keys=COUNTED_KEYS, report=report)
    return [(record.line(), repr(record[2:])) for record in found]


def reading(content: bytes, report: Any) -> str:
    return repr(read_mllog_chunks([content], name="f", allowed={}, report=report))


@settings(max_examples=200, deadline=None)
@given(content=edited_logs())
# An object from one line to the next, and two in the one behind them.
@example(f'{line()[:-1]}\n:::MLLOG "z":1}}\n{line()},{line()[9:]}\n'.encode())
# A string, and a list, from one line to the next.
@example(f'{line(value="null", metadata="{")[:-1]}"x":"\n:::MLLOG {{"}}}}\n'.encode())
@example(f'{line()[:-1]},"x":[{{}}\n:::MLLOG {{}}]}}\n{line()}\n'.encode())
# Two values in one line.
@example(f"{line()},{{}}\n".encode())
def test_at_once_is_read_what_is_read_line_by_line(content: bytes) -> None:
    for read in (records, reading):
        quick = outcome(content, read)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mllog_lines, "AT_ONCE_BYTES", -1)
            assert quick == outcome(content, read)


def test_the_lines_of_a_run_are_read_at_once() -> None:
    found = at_once(*RUN.split("\n"))

    assert found is not None
    assert [record.key for record in found] == re.findall('"key":"([a-z_]+)"', RUN)
    assert [record.line() for record in found] == list(range(1, 14))
    assert found[2][3:] == (1000.5, 64, {}, True)
    assert at_once(line().replace('":', '": ').replace(',"', ', "')) is not None


@pytest.mark.parametrize(
    "odd",
    [
        line(value="[1]"), line(value='{"a":1}'), line(value='"a:b"'), line(value="oops"),
        line(value='1,"value":2'), line(time_ms="-1"), line(time_ms='"5"'), line(time_ms="true"),
        line(time_ms="100000000000001"), line(key=""), line(key="k" * 101), line(metadata="null"),
        line(value="{}", metadata="5"), line(metadata='{"a":{}}'), ":::MLLOG{}", ":::MLLOG {}",
        line(value='"' + "x" * 17_000 + '"'), ":::MLLOG", line() + "}",
        line().replace('"key":"seed"', '"key":{}'),
    ],
)  # fmt: skip
def test_one_odd_line_is_enough_for_a_closer_look(odd: str) -> None:
    assert at_once(line(), odd, line()) is None
