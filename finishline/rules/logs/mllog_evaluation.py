"""Evaluations of an MLPerf log: measured quality, and the seconds of measuring."""

from typing import Any

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_record import MllogRecord, is_number

MAX_COUNT = 2**63 - 1


class EvaluationTime:
    """Milliseconds spent in evaluations, from eval_start and eval_stop.

    `told` is whether the log has an eval_start at all.
    """

    def __init__(self) -> None:
        self.told = False
        self._total_ms = 0.0
        self._opened_ms: float | None = None
        self._measured_ms: float | None = None

    def start(self, time_ms: float) -> None:
        """An evaluation starts; ranks may repeat it, and one without eval_stop is over."""
        self.told = True
        if self._measured_ms is not None:
            self.stop(self._measured_ms)
        if self._opened_ms is None:
            self._opened_ms = time_ms

    def measure(self, time_ms: float) -> None:
        """The quality is known: where eval_stop is missing, the evaluation ended here."""
        if self._opened_ms is not None:
            self._measured_ms = time_ms

    def stop(self, time_ms: float) -> None:
        """An evaluation ends."""
        self._total_ms = self.total_ms(time_ms)
        self._opened_ms = self._measured_ms = None

    def total_ms(self, time_ms: float) -> float:
        """Milliseconds in evaluations up to a moment."""
        if self._opened_ms is None:
            return self._total_ms
        return self._total_ms + time_ms - self._opened_ms


def read_measurement(record: MllogRecord, *, file: str) -> tuple[float | None, int | None, float]:
    """Epoch, samples and quality of an eval_accuracy or eval_error line.

    One of epoch_num and samples_count must be there. Raises LogFormatError.
    """
    value = record.value
    if type(value) is float:
        metadata = record.metadata
        epoch, samples = metadata.get("epoch_num"), metadata.get("samples_count")
        # Most lines have one or both of them, of the usual types.
        if type(samples) is int and 0 <= samples <= MAX_COUNT:
            if epoch is None:
                return None, samples, value
            if type(epoch) is float and 0 <= epoch <= MAX_COUNT:
                return epoch, samples, value
    epoch = _count(record, "epoch_num", file=file)
    samples = _count(record, "samples_count", file=file)
    if epoch is None and samples is None:
        raise _fail(record, "metadata", "no epoch_num", "epoch_num or samples_count", file=file)
    if samples is not None and samples % 1:
        raise _fail(
            record, "metadata.samples_count", repr(samples), "a whole number of samples", file=file
        )
    if not is_number(record.value):
        raise _fail(record, "value", repr(record.value)[:60], "a finite number", file=file)
    return (
        None if epoch is None else float(epoch),
        None if samples is None else int(samples),
        float(record.value),
    )


def first_quality(record: MllogRecord) -> tuple[MllogRecord, dict[str, float]]:
    """The line of an evaluation with a table of qualities as one of the first, and the others."""
    (_, first), *others = record.value.items() or (("", None),)
    numbers = {name: float(quality) for name, quality in others if is_number(quality)}
    return record._replace(value=first), numbers


def read_status(record: MllogRecord, *, file: str) -> str | None:
    """The status word of a run_stop line, None where there is none. Raises LogFormatError."""
    status = record.metadata.get("status")
    if status is None or (type(status) is str and 0 < len(status) <= 40 and status.isprintable()):
        return status
    raise _fail(record, "metadata.status", repr(status)[:60], "success or aborted", file=file)


def _count(record: MllogRecord, name: str, *, file: str) -> Any:
    value = record.metadata.get(name)
    if value is None or (is_number(value) and 0 <= value <= MAX_COUNT):
        return value
    raise _fail(record, f"metadata.{name}", repr(value)[:60], "a number of at least 0", file=file)


def _fail(
    record: MllogRecord, field: str, message: str, expected: str, *, file: str
) -> LogFormatError:
    return LogFormatError(
        f"{record.key}: {message}", file=file, line=record.line(), field=field, expected=expected
    )
