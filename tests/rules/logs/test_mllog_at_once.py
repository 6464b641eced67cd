"""Lines that are read all at once, against the same lines one by one."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.logs import mllog_lines
from finishline.rules.logs.mllog import read_mllog_chunks, write_run_log
from finishline.rules.logs.mllog_lines import every_line, read_mllog
from finishline.rules.logs.mllog_record import WholeEvaluation, read_at_once
from finishline.rules.logs.mllog_run import COUNTED_KEYS
from finishline.rules.logs.text import Block
from finishline.rules.scoring.run import Evaluation, Ledger, Run


def line(
    key: str = "seed",
    value: str = "1",
    time_ms: str = "5",
    metadata: str = "{}",
    kind: str = "POINT_IN_TIME",
) -> str:
    return (
        f':::MLLOG {{"namespace":"","time_ms":{time_ms},"event_type":"{kind}","key":"{key}",'
        f'"value":{value},"metadata":{metadata}}}'
    )


def evaluation(began_ms: str, ended_ms: str, quality: str, metadata: str) -> list[str]:
    return [
        line("eval_start", "null", began_ms, metadata, "INTERVAL_START"),
        line("eval_accuracy", quality, ended_ms, metadata),
        line("eval_stop", "null", ended_ms, metadata, "INTERVAL_END"),
    ]


LINES = [
    line("init_start", "null", "1000", kind="INTERVAL_START"),
    line("submission_benchmark", '"digits"', "1000"),
    line("global_batch_size", "64", "1000.5"),
    line("opt_base_learning_rate", "0.02", "1000.5"),
    line("run_start", "null", "2000.25", kind="INTERVAL_START"),
    *evaluation("3000", "3004.5", "15.8", '{"epoch_num":1.0,"samples_count":1152}'),
    *evaluation("4000.125", "4005", "62.25", '{"epoch_num":2.0,"samples_count":2304}'),
    *evaluation("5000", "5004", "97.75", '{"epoch_num":3.0}'),
    line("run_stop", "null", "5004", '{"status":"success"}', "INTERVAL_END"),
]
WHOLE = ["WholeEvaluation" if place in (5, 6) else "MllogRecord" for place in range(11)]


def at_once(*lines: str) -> list[Any] | None:
    return read_at_once(Block("\n".join(lines).encode(), 1))


def test_lines_in_order_are_read_at_once_and_evaluations_in_our_spelling_whole() -> None:
    found = at_once(*LINES)

    assert found is not None
    assert [type(each).__name__ for each in found] == WHOLE
    assert found[2][2:] == ("global_batch_size", 1000.5, 64, {}, True)
    assert found[6][2:] == (4000.125, 2.0, 2304, 4005, 62.25, 4005)
    assert [each.line() for each in found] == [1, 2, 3, 4, 5, 7, 10, 12, 13, 14, 15]


def test_lines_in_the_spelling_of_other_loggers_are_read_at_once() -> None:
    spaced = [text.replace('":', '": ').replace(',"', ', "') for text in LINES]

    assert [each.line() for each in at_once(*spaced) or []] == list(range(1, 16))


def test_every_evaluation_that_finishline_writes_is_read_whole(digits: Benchmark) -> None:
    """Where the writer changes its spelling, this tells that the reader did not follow."""
    evaluations = tuple(
        Evaluation(float(j), 2.5 * j, 10.1 + j / 3, 1152 * j, Ledger(0.5, train=2 * j, eval=j / 2))
        for j in range(1, 8)
    )
    run = Run("r", "mlperf", evaluations, status="success", stop_seconds=20.0)

    text = write_run_log(run, benchmark=digits, started_at_ms=1_790_000_000_000)

    kinds = [type(each) for each in at_once(text) or []]
    assert kinds.count(WholeEvaluation) == len(evaluations)


@pytest.mark.parametrize(
    "odd",
    [
        line(value="[1]"), line(value='{"a":1}'), line(value='"a:b"'), line(value="oops"),
        line(value='1,"value":2'), line(time_ms="-1"), line(time_ms='"5"'), line(time_ms="true"),
        line(time_ms="100000000000001"), line(key=""), line(key="k" * 101), line(metadata="null"),
        line(value="{}", metadata="5"), line(metadata='{"a":{}}'), ":::MLLOG{}", ":::MLLOG {}",
        line(value='"' + "x" * 17_000 + '"'), ":::MLLOG", line() + "}",
        line().replace('"key":"seed"', '"key":{}'), "10 %\r" + line(),
        "\n".join(evaluation("05", "6", "1.5", '{"epoch_num":1.0,"samples_count":1}')),
    ],
)  # fmt: skip
def test_one_odd_line_is_enough_for_a_closer_look(odd: str) -> None:
    assert at_once(line(), line()) is not None
    assert at_once(line(), odd, line()) is None


def test_lines_that_are_read_at_once_count_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    content = "\n".join(LINES).encode() + b"\n"
    monkeypatch.setattr(mllog_lines, "MAX_MLLOG_LINES", 15)
    assert problems_of(content) == []

    monkeypatch.setattr(mllog_lines, "MAX_MLLOG_LINES", 13)
    assert problems_of(content) == ["f line 14: too many lines; expected at most 13 MLLOG lines"]
    monkeypatch.setattr(mllog_lines, "MAX_MLLOG_LINES", 18)
    chunks = [content, content]
    assert "f line 19: too many lines; expected at most 18 MLLOG lines" in problems_of(*chunks)


def problems_of(*chunks: bytes) -> list[str]:
    problems: list[LogFormatError] = []
    read_mllog_chunks(chunks, name="f", allowed={}, report=problems.append)
    return list(map(str, problems))


PIECES = st.sampled_from(
    ["", '"', ":", ",", "{", "}", "[", "]", "\\", "\n", "\r", " ", "0", "-", ".5", "e9", "1e400",
     "99999999999999999999", "null", "true", "NaN", "\x01", "\xe9", ":::MLLOG", ":::MLLOG {",
     '"key":"seed",', '"value":1', '},{"key":', "},\n{", '"metadata":', "eval_error", "x" * 20_000]
)  # fmt: skip
SHARES = st.floats(0, 1)


@st.composite
def edited_logs(draw: st.DrawFn) -> bytes:
    """The log with lines moved, left out and doubled, and with bytes of it changed."""
    lines = list(LINES)
    for place, other in draw(st.lists(st.tuples(SHARES, SHARES), max_size=2)):
        moved = lines.pop(int(place * (len(lines) - 1)))
        if other < 0.8:
            lines[int(other * len(lines)) : 0] = [moved] * draw(st.sampled_from([1, 1, 2]))
    text = "\n".join(lines)
    for place, length, piece in draw(
        st.lists(st.tuples(SHARES, st.integers(0, 12), PIECES), max_size=3)
    ):
        start = int(place * len(text))
        text = text[:start] + piece + text[start + length :]
    return text.encode("latin-1") + draw(st.sampled_from([b"\n", b"\n", b""]))


def records(content: bytes, report: Any, *, quickly: bool) -> list[Any]:
    found = read_mllog(
        [content],
        file="f",
        lines=every_line(),
        counted_keys=COUNTED_KEYS,
        report=report,
        at_once=quickly,
    )
    each = (
        record
        for item in found
        for record in (item.records() if isinstance(item, WholeEvaluation) else [item])
    )
    return [(record.line(), repr(record[2:])) for record in each]


def reading(
    content: bytes, report: Any, *, quickly: bool, target: QualityTarget | None = None
) -> str:
    with pytest.MonkeyPatch.context() as patch:
        if not quickly:
            patch.setattr(mllog_lines, "AT_ONCE_BYTES", -1)
        return repr(
            read_mllog_chunks([content], name="f", allowed={}, report=report, target=target)
        )


def outcome(read: Callable[..., Any], content: bytes, *, quickly: bool) -> tuple[Any, list[Any]]:
    """What is read from a log, and what is reported of it."""
    problems: list[LogFormatError] = []
    found = read(content, problems.append, quickly=quickly)
    return found, [(str(problem), problem.code) for problem in problems]


@settings(max_examples=400)
@given(content=edited_logs())
# An object from one line to the next, and two in the one behind them.
@example(f'{line()[:-1]}\n:::MLLOG "z":1}}\n{line()},{line()[9:]}\n'.encode())
# A string, and a list, from one line to the next.
@example(f'{line(value="null", metadata="{")[:-1]}"x":"\n:::MLLOG {{"}}}}\n'.encode())
@example(f'{line()[:-1]},"x":[{{}}\n:::MLLOG {{}}]}}\n{line()}\n'.encode())
# Two values in one line; something behind an evaluation; evaluations out of their order.
@example(f"{line()},{{}}\n".encode())
@example("\n".join([*LINES[:7], LINES[7] + "}", *LINES[8:], ""]).encode())
@example("\n".join([*LINES[:5], *LINES[8:11], *LINES[5:8], *LINES[11:], ""]).encode())
@example("\n".join([*LINES[:4], *LINES[5:11], LINES[4], *LINES[11:], ""]).encode())
@example("\n".join([*LINES[:8], line("run_stop", "null", "3500"), *LINES[8:], ""]).encode())
@example("\n".join([line("init_stop", "null", "1500"), *LINES[5:], ""]).encode())
@example("\n".join([*LINES[:6], *LINES[8:], ""]).encode())
@example("\n".join(LINES).replace("4000.125", "4005.5").encode() + b"\n")
@example("\n".join(LINES).replace("4005", "400000000000000").encode() + b"\n")
@example("\n".join([*LINES[:12], LINES[12].replace("accuracy", "error"), ""]).encode())
@example("\n".join(LINES).replace('"eval_accuracy"', '"eval_error"', 1).encode() + b"\n")
def test_at_once_is_read_what_is_read_line_by_line(content: bytes) -> None:
    for read in (records, reading):
        assert outcome(read, content, quickly=True) == outcome(read, content, quickly=False)


@pytest.mark.parametrize("offline", [True, False])
def test_whole_evaluations_are_none_where_a_target_has_several_metrics(offline: bool) -> None:
    clip = QualityTarget("CLIP", 0.15, "score", "higher", logged_as="CLIP")
    target = QualityTarget("FID", 90.0, "score", "lower", logged_as="FID", also=(clip,))
    read = partial(reading, target=replace(target, offline=offline))
    content = "\n".join(LINES).encode()

    found, problems = outcome(read, content, quickly=True)

    assert (found, problems) == outcome(read, content, quickly=False)
    assert [code for _, code in problems] == ["missing_metric"] * 3
