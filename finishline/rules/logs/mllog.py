"""MLPerf Training logs as runs: `:::MLLOG {json}` lines, and the formats of v0.5 and v0.6.

Source: MLPerf training_rules.adoc, "Logging"; the required keys of the v5.1 compliance checker.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import LogFormatError
from finishline.rules.logs.earlier_lines import FIRST_EPOCH_05, as_later_05, as_later_06
from finishline.rules.logs.mllog_evaluation import Report
from finishline.rules.logs.mllog_lines import (
    MLLOG,
    MLP05,
    MLP06,
    Format,
    find_misleading,
    format_of,
    read_lines,
)
from finishline.rules.logs.mllog_record import MllogRecord
from finishline.rules.logs.mllog_run import (
    COUNTED_KEYS,
    QUALITY_KEYS,
    RUN_KEYS,
    TRAINED,
    Reading,
    RunReader,
)
from finishline.rules.logs.mllog_settings import SETTING_KEYS
from finishline.rules.logs.text import refuse_long_lines
from finishline.rules.run import Run

# Of MiniGo in v0.6 eval_result tells when the run stopped.
FIGURE_KEYS = QUALITY_KEYS | RUN_KEYS | {"eval_result"}
PUBLISHED_KEYS = FIGURE_KEYS | SETTING_KEYS | {"init_start", "init_stop", TRAINED}
MOST_KEPT_PROBLEMS = 100


def parse_mllog(content: bytes, *, name: str, benchmark: Benchmark, archive: bool = False) -> Run:
    """The run in an MLPerf log, its seconds counted from run_start.

    Lines of several ranks may be interleaved. The times of the lines that count (init_stop,
    run_start, evaluations, run_stop) may not decrease. A log without run_stop has status and
    stop_seconds None. Evaluations have a ledger if the log has eval_start lines. Raises
    LogFormatError naming file, line, field and expectation.

    In the log of an `archive` the oddities that `read_log` calls odd are passed over.
    """

    def refuse(error: LogFormatError) -> None:
        raise error

    def pass_over(error: LogFormatError) -> None:
        """Leave the line out."""

    refuse_long_lines(content, file=name)
    form = format_of(content) or MLLOG
    allowed = {"submission_benchmark": benchmark.log_names}
    if form is not MLP05:  # Its lines tell no division.
        allowed["submission_division"] = benchmark.divisions
    return read_log(
        [content],
        form,
        name=name,
        allowed=allowed,
        report=refuse,
        odd=pass_over if archive or form is MLP05 else refuse,
        target=benchmark.target,
    ).run


def read_log(
    chunks: Iterable[bytes],
    form: Format,
    *,
    name: str,
    allowed: Mapping[str, Sequence[str]],
    report: Report,
    odd: Report,
    target: QualityTarget | None = None,
    every_line: bool = True,
) -> Reading:
    """The run in an MLPerf log of any size, given piece by piece.

    Errors go to `report`, which may raise. If it does not, the wrong line is left out. Published
    logs have oddities that no figure rests on, and these go to `odd`: a line that cannot be read
    and has another key than a figure's, any such line at the end of a log or of a run that never
    stopped, an evaluation outside the run, phases in disorder, a seed that is not an integer, a
    line that misleads. `allowed` has the texts that settings such as submission_division may have.
    `target` names the metrics of an evaluation that has several.

    Without `every_line` the sound lines without a key of a published figure are not decoded. Then
    there is no ledger and no hyperparameter.
    """
    names = target.logged_names if target is not None else ()
    unread: list[LogFormatError] = []

    def report_line(error: LogFormatError, text: bytes) -> None:
        key = form.key_of(text)
        keyless = error.code == "bad_line" and error.field == "key"
        if odd is report:
            report(error)
        elif keyless or (key is not None and key not in FIGURE_KEYS):
            odd(error)
        elif error.code == "bad_json" and len(unread) < MOST_KEPT_PROBLEMS:
            unread.append(error)
        else:
            report(error)

    wanted = None if every_line else frozenset(key.encode() for key in PUBLISHED_KEYS)
    records = read_lines(chunks, form, file=name, wanted=wanted, report=report_line)
    if form is MLP05:
        records = as_later_05(records, names)
    elif form is MLP06:
        by_result = target is not None and target.timed_by_result
        records = as_later_06(records, names, timed_by_result=by_result)
    elif odd is not report:
        records = _noting_misleading(records, file=name, odd=odd)
    reader = RunReader(
        name,
        allowed,
        report=report,
        odd=odd,
        target=None if form is MLP05 else target,
        first_epoch=FIRST_EPOCH_05 if form is MLP05 else None,
    )
    followed = 0
    for record in records:
        if unread and record.key in PUBLISHED_KEYS:
            followed = len(unread)
        reader.read(record)
    reading = reader.reading(form.version)
    unfinished = reading.run.stop_seconds is None
    for place, error in enumerate(unread):
        is_last = place == followed == len(unread) - 1
        (odd if reading.trusted and (unfinished or is_last) else report)(error)
    return reading


def _noting_misleading(
    records: Iterable[MllogRecord], *, file: str, odd: Report
) -> Iterator[MllogRecord]:
    """The records. One that a careless reader takes for a line that counts is noted."""
    for record in records:
        if record.key not in COUNTED_KEYS and (key := find_misleading(record)) is not None:
            odd(
                LogFormatError(
                    f"a line of {record.key!r} with {key} in it",
                    file=file,
                    line=record.line(),
                    field=record.key,
                    expected=f"{key} as a key, or not at all",
                    code="misleading_line",
                )
            )
        yield record
