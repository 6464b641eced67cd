"""Evaluations of an MLPerf log: measured quality, and the seconds of measuring."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_record import MllogRecord, is_number
from finishline.rules.run import Evaluation

# A double counts whole epochs exactly up to here. Published logs count samples as epochs.
MAX_COUNT = 2**53
COUNTS = "a number from 0 to 2^53"

Report = Callable[[LogFormatError], None]


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


def read_measurement(
    record: MllogRecord, *, file: str, first_epoch: int | None = None
) -> tuple[float | None, int | None, float]:
    """Epoch, samples and quality of an eval_accuracy or eval_error line.

    One of epoch_num and samples_count must be there. With a `first_epoch`, as in v0.5, neither need
    be, and epochs count from it. Raises LogFormatError.
    """
    epoch = _count(record, "epoch_num", file=file, lowest=first_epoch or 0)
    samples = _count(record, "samples_count", file=file)
    if epoch is None and samples is None and first_epoch is None:
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


def _count(record: MllogRecord, name: str, *, file: str, lowest: int = 0) -> Any:
    value = record.metadata.get(name)
    if value is None or (is_number(value) and lowest <= value <= MAX_COUNT):
        return value
    raise _fail(record, f"metadata.{name}", repr(value)[:60], COUNTS, file=file)


def _fail(
    record: MllogRecord, field: str, message: str, expected: str, *, file: str
) -> LogFormatError:
    return LogFormatError(
        f"{record.key}: {message}", file=file, line=record.line(), field=field, expected=expected
    )


Moment = tuple[float | None, int | None, int | None]


@dataclass
class _Measured:
    """Qualities at one moment of the training; the last line of a metric holds."""

    line: int
    seconds: float
    qualities: dict[str, float] = field(default_factory=dict)


class SeveralMetrics:
    """The lines of a log as evaluations: one for each count of samples, or each epoch.

    `names` are the metrics as `metadata.metric` or the table of a line has them, the main one
    first. Metrics are measured one after the other, so an evaluation is as late as the last of its
    lines. With `steps` a line may tell its `step_num`, which goes before epoch and samples.
    """

    def __init__(
        self, names: Sequence[str], *, file: str, report: Report, steps: bool = False
    ) -> None:
        self._names = {name.lower(): name for name in names}
        self._main = names[0]
        self._file = file
        self._report = report
        self._steps = steps
        self._moments: dict[Moment, _Measured] = {}

    def read(self, record: MllogRecord, *, seconds: float) -> None:
        """Take in the line of one metric, or of all of them."""
        try:
            if type(record.value) is dict:
                qualities = self._table(record)
            else:
                said = record.metadata.get("metric")
                name = self._names.get(said.lower()) if type(said) is str else None
                if name is None:
                    raise self._fail(record.line(), f"{said!r}"[:60], "metadata.metric")
                qualities = {name: record}
            measured = {name: self._measure(each) for name, each in qualities.items()}
        except LogFormatError as error:
            self._report(error)
            return
        for name, (place, quality) in measured.items():
            moment = self._moments.setdefault(place, _Measured(record.line(), seconds))
            moment.seconds = max(moment.seconds, seconds)
            moment.qualities[name] = quality

    def _table(self, record: MllogRecord) -> dict[str, MllogRecord]:
        """A line of several qualities as one for each metric, which are all there, once each."""
        said = [(str(name).lower(), value) for name, value in record.value.items()]
        values = dict(said)
        if len(values) < len(said) or not values.keys() >= self._names.keys():
            raise self._fail(record.line(), f"{record.value!r}"[:60], "eval_accuracy")
        return {
            name: record._replace(value=values[lowered]) for lowered, name in self._names.items()
        }

    def _measure(self, record: MllogRecord) -> tuple[Moment, float]:
        metadata = record.metadata
        if self._steps and metadata.get("step_num") is not None:
            record = record._replace(metadata={"samples_count": metadata.get("step_num")})
            _, step, quality = read_measurement(record, file=self._file)
            return (None, None, step), quality
        epoch, samples, quality = read_measurement(record, file=self._file)
        return (epoch, samples, None), quality

    def evaluations(self, batch_size: int | None) -> tuple[Evaluation, ...]:
        """The evaluations in order of the training; one without the main metric is reported.

        Where an evaluation tells its step alone, a batch was trained on in each.
        """
        found = []
        for (epoch, samples, step), measured in sorted(self._moments.items(), key=_progress):
            if step is not None and batch_size is not None:
                samples = step * batch_size
            others = dict(measured.qualities)
            quality = others.pop(self._main, None)
            if quality is None:
                self._report(self._fail(measured.line, f"no {self._main}", "eval_accuracy"))
                continue
            found.append(
                Evaluation(
                    epoch, measured.seconds, quality, samples, line=measured.line, others=others
                )
            )
        return tuple(found)

    def _fail(self, line: int, message: str, field: str) -> LogFormatError:
        names = " and ".join(self._names.values())
        return LogFormatError(
            message,
            file=self._file,
            line=line,
            field=field,
            expected=f"{names} of every evaluation",
            code="missing_metric",
        )


def _progress(item: tuple[Moment, _Measured]) -> tuple[float, float, int]:
    epoch, samples, step = item[0]
    return samples or 0, epoch or 0.0, step or 0
