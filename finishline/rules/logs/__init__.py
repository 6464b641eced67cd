"""Run logs: detect a file's format, and refuse unsafe files before reading."""

from collections.abc import Callable

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.dawnbench import parse_curve
from finishline.rules.logs.mllog import parse_mllog
from finishline.rules.logs.mllog_lines import MLLOG_MARK
from finishline.rules.logs.mlp05 import MLP_MARK, read_mlp05_chunks
from finishline.rules.logs.mlp06 import MLP06_MARK, read_mlp06_chunks
from finishline.rules.logs.text import MAX_FILE_BYTES, refuse_long_lines, refuse_other_content
from finishline.rules.scoring.run import ClockName, Run

MAX_NAME_LENGTH = 200
PACKED_SUFFIXES = (".gz", ".zip", ".zst", ".xz", ".bz2")
UNPACKED = "the log unpacked: it is read and published as plain text"

Parser = Callable[[bytes, str, Benchmark, bool], Run]


def parse_run_log(content: bytes, *, name: str, benchmark: Benchmark, archive: bool = False) -> Run:
    """The run in a log of any format.

    A name that ends in .tsv is a DAWNBench curve, everything else MLPerf's MLLOG or, by its lines,
    the format of MLPerf v0.5 or v0.6. A log of an `archive` may have broken lines, or lines out of
    order, that no figure needs. Raises LogFormatError with file, line, field and expectation.
    """
    check_file_name(name)
    if len(content) > MAX_FILE_BYTES:
        raise LogFormatError(
            f"{len(content):,} bytes", file=name, expected=f"at most {MAX_FILE_BYTES:,} bytes"
        )
    refuse_other_content(content, name=name)
    return _parser(name, content)(content, name, benchmark, archive)


def clock_of_log(name: str) -> ClockName:
    """The clock that the seconds in a log of this name count on."""
    named = _format_named(name)
    return "mlperf" if named is None else named[0]


def check_file_name(name: str) -> None:
    """Raise LogFormatError unless the name is a relative path that stays below its folder."""
    if problem := _name_problem(name):
        raise LogFormatError(
            problem,
            file=ascii(name)[1:-1][:MAX_NAME_LENGTH],
            field="file name",
            expected="a relative name such as run_0.log, with / between folders",
        )


def unpacked_name(name: str) -> str:
    """The name of a compressed log once it is unpacked, run_0.log for run_0.log.gz."""
    suffix = next((each for each in PACKED_SUFFIXES if name.lower().endswith(each)), "")
    return name[: len(name) - len(suffix)]


def _name_problem(name: str) -> str | None:
    if not name.strip():
        return "an empty file name"
    if len(name) > MAX_NAME_LENGTH:
        return f"a file name of {len(name)} characters, more than {MAX_NAME_LENGTH}"
    if not name.isprintable():
        return "control characters in a file name"
    if "\\" in name:
        return "a backslash in a file name"
    if name.startswith("/") or name[1:2] == ":":
        return "an absolute file name"
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        return "a file name that leaves its folder"
    return None


def _format_named(name: str) -> tuple[ClockName, Parser] | None:
    lowered = name.lower()
    return next((found for suffix, found in SUFFIXES.items() if lowered.endswith(suffix)), None)


def _parser(name: str, content: bytes) -> Parser:
    named = _format_named(name)
    if named is not None:
        return named[1]
    return next((parser for mark, parser in MARKS.items() if mark in content), _mllog)


def _dawnbench(content: bytes, name: str, benchmark: Benchmark, archive: bool) -> Run:
    target = benchmark.target
    return parse_curve(content, name=name, metric=target.metric, unit=target.unit)


def _mllog(content: bytes, name: str, benchmark: Benchmark, archive: bool) -> Run:
    return parse_mllog(content, name=name, benchmark=benchmark, archive=archive)


def _refuse(error: LogFormatError) -> None:
    raise error


def _pass_over(error: LogFormatError) -> None:
    """Leave the line out."""


def _mlp06(content: bytes, name: str, benchmark: Benchmark, archive: bool) -> Run:
    refuse_long_lines(content, file=name)
    return read_mlp06_chunks(
        [content],
        name=name,
        allowed={
            "submission_benchmark": benchmark.log_names,
            "submission_division": benchmark.divisions,
        },
        report=_refuse,
        odd=_pass_over if archive else None,
        told=True,
        target=benchmark.target,
    ).run


def _mlp05(content: bytes, name: str, benchmark: Benchmark, archive: bool) -> Run:
    return read_mlp05_chunks(
        [content],
        name=name,
        allowed={"submission_benchmark": benchmark.log_names},
        report=_refuse,
        notice=_pass_over,
        target=benchmark.target,
    ).run


# Formats known by the ends of their files' names: clock and parser.
SUFFIXES: dict[str, tuple[ClockName, Parser]] = {".tsv": ("dawnbench", _dawnbench)}
# Formats known by a mark, on MLPerf's clock. The first that a log has counts; without any it is an
# MLLOG.
MARKS: dict[bytes, Parser] = {MLLOG_MARK: _mllog, MLP_MARK: _mlp05, MLP06_MARK: _mlp06}
