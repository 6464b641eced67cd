"""Long lines: refused early, or read in linear time and little memory."""

import time
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from finishline.rules.errors import LogFormatError
from finishline.rules.logs import mllog_lines
from finishline.rules.logs.mllog_lines import (
    MLLOG_MARK,
    MllogRecord,
    every_line,
    lines_that_count,
    read_mllog,
)
from finishline.rules.logs.text import MAX_LINE_BYTES, refuse_long_lines, whole_line_blocks

MEBIBYTE = 1024 * 1024


def record_line(key: str = "seed", value: str = "1") -> bytes:
    return (
        b':::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "POINT_IN_TIME", '
        b'"key": "%b", "value": %b, "metadata": {"lineno": 1}}' % (key.encode(), value.encode())
    )


def read(*chunks: bytes, counted: bool = False) -> tuple[list[MllogRecord], list[LogFormatError]]:
    """The records in some chunks, and what was reported."""
    problems: list[LogFormatError] = []
    keys = frozenset({"seed", "run_stop"})
    lines = lines_that_count(keys) if counted else every_line()
    records = read_mllog(chunks, file="f", lines=lines, counted_keys=keys, report=problems.append)
    return list(records), problems


def test_a_mark_is_found_anywhere_in_a_line_and_numbered_from_one() -> None:
    content = b"\n0: %b\r\nnoise\n \xff%b\n%b" % (record_line(), record_line(), record_line())
    records, problems = read(content)
    assert ([record.line() for record in records], problems) == ([2, 4, 5], [])


def test_a_carriage_return_ends_a_line() -> None:
    """Progress bars write over themselves; the published checker reads their parts as lines."""
    records, problems = read(b"10 %%\r%b\r20 %%\n" % record_line())
    assert (len(records), problems) == (1, [])


def test_a_carriage_return_does_not_hide_a_line_that_counts() -> None:
    """What stands behind it could make the line look like one of no use."""
    short = b'"key":"seed","value":1,"time_ms":1,"metadata":{}}'
    behind = b'"POINT_IN_TIME", "key": "note"}'
    content = b":::MLLOG {%b%b%b" % (short, b"\r".ljust(57 - len(short)), behind)
    assert content.index(behind) == len(b":::MLLOG {") + 57

    found, problems = read(content, counted=True)

    assert ([record.key for record in found], problems) == (["seed"], [])


def test_a_second_mark_in_a_line_belongs_to_the_first() -> None:
    records, problems = read(record_line("note", '":::MLLOG {}"') + b"\n" + record_line())
    assert ([record.line() for record in records], problems) == ([1, 2], [])


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_lines_are_the_same_however_the_file_is_cut(size: int) -> None:
    content = b"x\n%b\r\n\n%b\n%b" % (record_line(), b"y" * 300, record_line("run_stop"))
    chunks = [content[i : i + size] for i in range(0, len(content), size)]
    records, problems = read(*chunks)
    assert [(record.key, record.line()) for record in records] == [("seed", 2), ("run_stop", 5)]
    assert problems == []


def test_lines_of_no_use_are_passed_over_unread() -> None:
    content = record_line("tracked_stats", '{"loss": NaN}') + b"\n" + record_line()
    records, problems = read(content, counted=True)
    assert ([record.key for record in records], problems) == (["seed"], [])
    assert [problem.line for problem in read(content)[1]] == [1]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_that_count_are_the_same_whatever_ends_a_line(end: bytes) -> None:
    keys = ("seed", "tracked_stats", "run_stop")
    records, problems = read(end.join(map(record_line, keys)), counted=True)
    assert [record.key for record in records] == ["seed", "run_stop"]
    assert problems == []


@pytest.mark.parametrize("key", ["seed2", "see", "run_stopped", "stop", "x"])
def test_a_key_that_is_only_like_one_that_counts_is_of_no_use(key: str) -> None:
    content = record_line(key, "NaN") + b"\n" + record_line()
    records, problems = read(content, counted=True)
    assert ([record.key for record in records], problems) == (["seed"], [])


@pytest.mark.parametrize("key", ["tracked_st", "seed"])
def test_a_line_that_breaks_off_in_its_key_is_reported(key: str) -> None:
    broken = record_line(key).partition(b'", "value"')[0]
    records, [problem] = read(broken + b"\n" + record_line(), counted=True)
    assert ([record.key for record in records], problem.line) == (["seed"], 1)


def test_a_line_that_counts_is_found_behind_one_of_no_use() -> None:
    """Ranks that write at once leave out the end of a line."""
    records, problems = read(record_line("tracked_stats") + record_line("run_stop"), counted=True)
    assert ([record.key for record in records], problems) == (["run_stop"], [])


@pytest.mark.parametrize("mark", [b"::MLLOG", b":::MLPLLOG", b"LLOG"])
@pytest.mark.parametrize("counted", [True, False])
def test_what_only_ends_like_the_mark_is_none(mark: bytes, counted: bool) -> None:
    content = record_line("run_stop").replace(MLLOG_MARK, mark)
    assert read(content, counted=counted) == ([], [])


@pytest.mark.parametrize(
    "line",
    [
        b':::MLLOG {"key":"run_stop","time_ms":1,"value":null,"metadata":{}}',
        b':::MLLOG {"time_ms": 1, "key": "run_stop"}',
        record_line("run_stop").replace(b'"event_type"', b'"rank": 1, "event_type"'),
        record_line("run_stop").replace(b"1700000000000", b"17"),
        record_line("run_stop").replace(b"run_", b"run\\u005f"),
    ],
)
def test_a_line_that_counts_cannot_hide_in_another_spelling(line: bytes) -> None:
    records, problems = read(line, counted=True)
    assert ([record.key for record in records], problems) == (["run_stop"], [])


@pytest.mark.parametrize(
    "line", [b":::MLLOG [1]", b":::MLLOG 1", b":::MLLOG {oops", b':::MLLOG {"time_ms": 1}']
)
def test_a_broken_line_is_reported_even_among_lines_of_no_use(line: bytes) -> None:
    records, [problem] = read(b"\n" + line + b"\n" + record_line(), counted=True)
    assert len(records) == 1
    assert (problem.file, problem.line) == ("f", 2)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (record_line().replace(b'{"lineno": 1}', b'""'), "bad_line"),
        (record_line(value="[" * 40 + "]" * 40), "deep_json"),
    ],
)
def test_a_line_that_counts_may_not_have_an_odd_form(line: bytes, code: str) -> None:
    records, [problem] = read(line, counted=True)
    assert (records, problem.code) == ([], code)


@pytest.mark.parametrize("length", [9, 10])
def test_a_line_at_the_limit_passes(length: int) -> None:
    refuse_long_lines(b"ab\n" + b"x" * length + b"\nab", file="f", limit=10)


@pytest.mark.parametrize("tail", [b"", b"\n", b"\nab\n"])
def test_a_line_one_byte_over_the_limit_is_refused_with_its_number(tail: bytes) -> None:
    with pytest.raises(LogFormatError) as caught:
        refuse_long_lines(b"ab\n\nab\n" + b"x" * 11 + tail, file="f", limit=10)
    assert caught.value.line == 4


def test_a_long_mllog_line_is_reported_and_the_rest_is_read() -> None:
    long = record_line("note", '"' + "A" * 60_000 + '"')
    records, [problem] = read(b"%b\n%b\n%b\n" % (record_line(), long, record_line()))
    assert len(records) == 2
    assert (problem.line, problem.code) == (2, "long_line")


def test_the_number_of_mllog_lines_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mllog_lines, "MAX_MLLOG_LINES", 3)
    assert read((record_line() + b"\n") * 3)[1] == []
    records, [problem] = read((record_line() + b"\n") * 5)
    assert (len(records), problem.line) == (3, 4)


def chunks_of(size: int, *, line: bytes) -> Iterator[bytes]:
    chunk = line * (MEBIBYTE // len(line))
    return (chunk for _ in range(size))


@pytest.mark.parametrize(
    "line", [b"x" * MEBIBYTE, b":::MLLO", MLLOG_MARK, b"x\r", record_line("tracked_stats") + b"\n"]
)
def test_memory_stays_small_whatever_the_size_of_a_log_or_of_a_line(line: bytes) -> None:
    tracemalloc.start()
    records = 0
    for block in whole_line_blocks(chunks_of(64, line=line), mark=MLLOG_MARK):
        records += len(block.content)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MEBIBYTE


def near_marks(size: int) -> bytes:
    line = b":::MLLO" * (MAX_LINE_BYTES // 7) + b"\n"
    return line * (size // len(line))


def short_lines(size: int) -> bytes:
    return b"\n:::MLLO" * (size // 8)


def one_line(size: int) -> bytes:
    return b"x" * size


def marks(size: int) -> bytes:
    return b":::MLLOG " * (size // 9)


def one_marked_line(size: int) -> bytes:
    return b':::MLLOG {"key": "' + b"A" * size


@pytest.mark.parametrize("build", [near_marks, short_lines, one_line, marks, one_marked_line])
@pytest.mark.parametrize("counted", [True, False])
def test_reading_time_grows_with_the_size_not_with_its_square(
    build: Callable[[int], bytes], counted: bool
) -> None:
    def cpu_seconds(size: int) -> float:
        content = build(size)
        pieces = [content[i : i + MEBIBYTE] for i in range(0, len(content), MEBIBYTE)]
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            read(*pieces, counted=counted)
            best = min(best, time.process_time() - started)
        return best

    small, large = cpu_seconds(2 * MEBIBYTE), cpu_seconds(16 * MEBIBYTE)
    assert large < 24 * small + 0.01  # Eight times the size; its square would be 64 times.
