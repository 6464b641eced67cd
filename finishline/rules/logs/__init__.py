"""Read run logs: detect a file's format, and refuse unsafe files before reading."""

from dataclasses import replace

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.dawnbench import parse_curve
from finishline.rules.logs.lines import format_of
from finishline.rules.logs.mllog import parse_mllog
from finishline.rules.logs.steps import parse_steps
from finishline.rules.logs.text import is_placeholder, refuse_other_content
from finishline.rules.run import ClockName, Run

MAX_NAME_LENGTH = 200
PACKED_SUFFIXES = (".gz", ".zip", ".zst", ".xz", ".bz2")
UNPACKED = "the log unpacked: it is read and published as plain text"


def parse_run_log(content: bytes, *, name: str, benchmark: Benchmark, archive: bool = False) -> Run:
    """Read the run in a log of any format.

    A name that ends in .tsv is a DAWNBench curve, everything else MLPerf's MLLOG or, by its lines,
    the format of MLPerf v0.5 or v0.6, or NanoGPT's for a benchmark on the speedrun clock. Times
    without a ledger leave evaluation out on the speedrun clock. A log of an `archive` may have
    broken or disordered lines that no figure needs, or be a placeholder. Raises LogFormatError with
    file, line, field and expectation.
    """
    check_file_name(name)
    refuse_other_content(content, name=name)
    target = benchmark.target
    if name.lower().endswith(".tsv"):
        run = parse_curve(content, name=name, metric=target.metric, unit=target.unit)
    elif benchmark.clock.name == "speedrun" and format_of(content) is None:
        run = parse_steps(content, name=name)
    elif archive and is_placeholder(content):
        run = Run(name, clock="mlperf", evaluations=())
    else:
        run = parse_mllog(content, name=name, benchmark=benchmark, archive=archive)
    if clock_of_log(name, benchmark) == "speedrun" and not any(e.ledger for e in run.evaluations):
        return replace(run, clock="speedrun", stop_seconds=None)
    return run


def clock_of_log(name: str, benchmark: Benchmark) -> ClockName:
    """Return the clock of the seconds in a log without a ledger."""
    if benchmark.clock.name == "speedrun":
        return "speedrun"
    return "dawnbench" if name.lower().endswith(".tsv") else "mlperf"


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
    """Return the name of an unpacked log, run_0.log for run_0.log.gz."""
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
