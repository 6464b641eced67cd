"""Run logs: detect a file's format, and refuse unsafe files before reading."""

from collections.abc import Callable

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.dawnbench import parse_curve
from finishline.rules.logs.mllog import parse_mllog
from finishline.rules.logs.mllog_lines import MLLOG_MARK
from finishline.rules.logs.mlp05 import MLP_MARK, read_mlp05_chunks
from finishline.rules.logs.mlp06 import MLP06_MARK, read_mlp06_chunks
from finishline.rules.logs.text import MAX_FILE_BYTES, refuse_long_lines
from finishline.rules.scoring.run import Run

MAX_NAME_LENGTH = 200
COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"PK\x07\x08": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
}

Parser = Callable[[bytes, str, Benchmark, bool], Run]


def parse_run_log(content: bytes, *, name: str, benchmark: Benchmark, archive: bool = False) -> Run:
    """The run in a log of any format.

    A name that ends in .tsv is a DAWNBench curve, everything else MLPerf's MLLOG or, by its lines,
    the format of MLPerf v0.5 or v0.6. A log of an `archive` may have broken lines, or lines out of
    order, that no figure needs. Raises LogFormatError with file, line, field and expectation.
    """
    check_file_name(name)
    if not content or content.isspace():
        raise LogFormatError("an empty log", file=name, expected="one training run")
    if len(content) > MAX_FILE_BYTES:
        raise LogFormatError(
            f"{len(content):,} bytes", file=name, expected=f"at most {MAX_FILE_BYTES:,} bytes"
        )
    for magic, kind in COMPRESSED.items():
        if content.startswith(magic):
            raise LogFormatError(
                f"{kind} compressed; send plain text", file=name, expected="a plain text log"
            )
    return _parser(name)(content, name, benchmark, archive)


def clock_of_log(name: str) -> str:
    """The clock that the seconds in a log of this name count on."""
    return "dawnbench" if _parser(name) is _dawnbench else "mlperf"


def check_file_name(name: str) -> None:
    """Raise LogFormatError unless the name is a relative path that stays below its folder."""
    if problem := _name_problem(name):
        raise LogFormatError(
            problem,
            file=ascii(name)[1:-1][:MAX_NAME_LENGTH],
            field="file name",
            expected="a relative name such as run_0.log, with / between folders",
        )


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


def _parser(name: str) -> Parser:
    lowered = name.lower()
    return next((parser for suffix, parser in FORMATS.items() if lowered.endswith(suffix)), _mllog)


def _dawnbench(content: bytes, name: str, benchmark: Benchmark, archive: bool) -> Run:
    target = benchmark.target
    return parse_curve(content, name=name, metric=target.metric, unit=target.unit)


def _mllog(content: bytes, name: str, benchmark: Benchmark, archive: bool) -> Run:
    if MLLOG_MARK not in content:
        if MLP_MARK in content:
            return _mlp05(content, name, benchmark)
        if MLP06_MARK in content:
            return _mlp06(content, name, benchmark, archive)
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


def _mlp05(content: bytes, name: str, benchmark: Benchmark) -> Run:
    return read_mlp05_chunks(
        [content],
        name=name,
        allowed={"submission_benchmark": benchmark.log_names},
        report=_refuse,
        notice=_pass_over,
        target=benchmark.target,
    ).run


FORMATS: dict[str, Parser] = {".tsv": _dawnbench}  # Any other name is an MLLOG.
