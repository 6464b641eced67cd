"""Evaluations in several metrics: a line for each (FID and CLIP), or all in one (BBOX and SEGM)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.mllog_evaluation import read_measurement
from finishline.rules.logs.mllog_lines import Report
from finishline.rules.logs.mllog_record import MllogRecord
from finishline.rules.scoring.run import Evaluation

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
    lines. With `steps` a line may tell its `step_num` in place of epoch and samples.
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
        if self._steps and metadata.get("epoch_num") is metadata.get("samples_count") is None:
            record = record._replace(metadata={"samples_count": metadata.get("step_num")})
            _, step, quality = read_measurement(record, file=self._file)
            return (None, None, step), quality
        epoch, samples, quality = read_measurement(record, file=self._file)
        return (epoch, samples, None), quality

    def evaluations(self) -> tuple[Evaluation, ...]:
        """The evaluations in order of the training; one without the main metric is reported."""
        found = []
        for (epoch, samples, _), measured in sorted(self._moments.items(), key=_progress):
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
