"""Long lines and many lines: refused early, read in linear time."""

import time
from collections.abc import Callable

import pytest

from rules.errors import LogFormatError
from rules.logs import lines
from rules.logs.lines import MAX_LINE_BYTES, mllog_lines, refuse_long_lines


def test_a_mark_is_found_anywhere_in_a_line_and_numbered_from_one() -> None:
    content = b'\n0: :::MLLOG {"a": 1}\r\nnoise\n \xff:::MLLOG [2]\n:::MLLOG 3'
    assert list(mllog_lines(content, file="f")) == [
        (2, b' {"a": 1}\r'),
        (4, b" [2]"),
        (5, b" 3"),
    ]


def test_a_second_mark_in_a_line_belongs_to_the_first() -> None:
    content = b':::MLLOG {"a": ":::MLLOG {}"}\n:::MLLOG {}\n'
    assert [number for number, _ in mllog_lines(content, file="f")] == [1, 2]


@pytest.mark.parametrize("length", [9, 10])
def test_a_line_at_the_limit_passes(length: int) -> None:
    refuse_long_lines(b"ab\n" + b"x" * length + b"\nab", file="f", limit=10)


@pytest.mark.parametrize("tail", [b"", b"\n", b"\nab\n"])
def test_a_line_one_byte_over_the_limit_is_refused_with_its_number(tail: bytes) -> None:
    with pytest.raises(LogFormatError) as caught:
        refuse_long_lines(b"ab\n\nab\n" + b"x" * 11 + tail, file="f", limit=10)
    assert caught.value.line == 4


def test_a_line_beyond_a_mebibyte_is_refused_wherever_it_stands() -> None:
    content = b":::MLLOG {}\n" * 10 + b"x" * (MAX_LINE_BYTES + 1) + b"\n:::MLLOG {}\n"
    with pytest.raises(LogFormatError, match=r"f line 11: a line of more than 1,048,576 bytes"):
        list(mllog_lines(content, file="f"))


def test_an_ordinary_line_may_be_longer_than_an_mllog_line() -> None:
    content = b"x" * 500_000 + b"\n:::MLLOG {}\n"
    assert list(mllog_lines(content, file="f")) == [(2, b" {}")]


def test_the_prefix_counts_in_the_length_of_an_mllog_line() -> None:
    content = b"x" * 16_384 + b":::MLLOG {}\n"
    with pytest.raises(LogFormatError, match="an MLLOG line of 16,395 bytes"):
        list(mllog_lines(content, file="f"))


def test_the_number_of_mllog_lines_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_MLLOG_LINES", 3)
    assert len(list(mllog_lines(b":::MLLOG 1\n" * 3, file="f"))) == 3
    with pytest.raises(LogFormatError) as caught:
        list(mllog_lines(b":::MLLOG 1\n" * 4, file="f"))
    assert caught.value.line == 4


def near_marks(size: int) -> bytes:
    line = b":::MLLO" * (MAX_LINE_BYTES // 7) + b"\n"
    return line * (size // len(line))


def short_lines(size: int) -> bytes:
    return b"\n:::MLLO" * (size // 8)


def full_lines(size: int) -> bytes:
    return (b"x" * MAX_LINE_BYTES + b"\n") * (size // MAX_LINE_BYTES)


@pytest.mark.parametrize("build", [near_marks, short_lines, full_lines])
def test_reading_time_grows_with_the_size_not_with_its_square(
    build: Callable[[int], bytes],
) -> None:
    def cpu_seconds(size: int) -> float:
        content = build(size)
        best = float("inf")
        for _ in range(3):
            started = time.process_time()
            list(mllog_lines(content, file="f"))
            best = min(best, time.process_time() - started)
        return best

    small, large = cpu_seconds(4 * MAX_LINE_BYTES), cpu_seconds(32 * MAX_LINE_BYTES)
    assert large < 24 * small + 0.01  # Eight times the size; its square would be 64 times.
