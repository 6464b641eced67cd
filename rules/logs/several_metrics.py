"""Evaluations in several metrics, each logged in a line of its own (FID and CLIP)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rules.errors import LogFormatError
from rules.logs.mllog_evaluation import read_measurement
from rules.logs.mllog_lines import Report
from rules.logs.mllog_record import MllogRecord
from rules.run import Evaluation

Moment = tuple[float | None, int | None]


@dataclass
class _Measured:
    """What is known of one moment of the training; the last line of a metric holds."""

    line: int
    seconds: float
    qualities: dict[str, float] = field(default_factory=dict)


class SeveralMetrics:
    """The lines of a log as evaluations: one for each count of samples, or each epoch.

    `names` are the metrics as `metadata.metric` has them, the main one first. Metrics are measured
    one after the other, so an evaluation is as late as the last of its lines.
    """

    def __init__(self, names: Sequence[str], *, file: str, report: Report) -> None:
        self._names = {name.lower(): name for name in names}
        self._main = names[0]
        self._file = file
        self._report = report
        self._moments: dict[Moment, _Measured] = {}

    def read(self, record: MllogRecord, *, seconds: float) -> None:
        """Take in the line of one metric."""
        said = record.metadata.get("metric")
        name = self._names.get(said.lower()) if type(said) is str else None
        try:
            if name is None:
                raise self._fail(record.line(), f"{said!r}"[:60], "metadata.metric")
            epoch, samples, quality = read_measurement(record, file=self._file)
        except LogFormatError as error:
            self._report(error)
            return
        moment = self._moments.setdefault((epoch, samples), _Measured(record.line(), seconds))
        moment.seconds = max(moment.seconds, seconds)
        moment.qualities[name] = quality

    def evaluations(self) -> tuple[Evaluation, ...]:
        """The evaluations in order of the training; one without the main metric is reported."""
        found = []
        for (epoch, samples), measured in self._moments.items():
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
        return tuple(sorted(found, key=_progress))

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


def _progress(evaluation: Evaluation) -> tuple[float, float]:
    return evaluation.samples or 0, evaluation.epoch or 0.0
