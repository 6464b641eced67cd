"""Collect the values of an MLPerf log: settings such as seeds, times, and qualities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from finishline.rules.errors import LogFormatError
from finishline.rules.logs.lines import Record, is_number
from finishline.rules.run import Evaluation, Ledger
from finishline.rules.text import shown

SETTING_KEYS = frozenset(
    {
        "submission_benchmark",
        "submission_division",
        "submission_org",
        "submission_platform",
        "seed",
        "global_batch_size",
    }
)
# Our own key, known only after the run.
PROCESSOR_SHARE = "processor_share"
MAX_HYPERPARAMETERS = 200
MAX_SEEDS = 10_000  # One for each accelerator of a large system.
MAX_LABEL_LENGTH = 200
MAX_INTEGER = 2**63 - 1
# A double counts whole epochs exactly up to here. Published logs count samples as epochs.
MAX_COUNT = 2**53
COUNTS = "a number from 0 to 2^53"
BAD, CHANGES, ONE_VALUE = "bad_setting", "setting_changes", "one value in a log"
# Largest difference between two rounded readings of the same instant.
ROUNDING_MS = 10

Report = Callable[[LogFormatError], None]


class LogSettings:
    """The settings of one log. Ranks may repeat a line, but only with the same value.

    `allowed` has, for some keys, the only texts they may have. A wrong line raises LogFormatError,
    and the first good value of a setting stays. `seeds` has every seed in the log, in order: each
    rank may have one. A seed that is not an integer, and a changing number outside all figures, go
    to `odd`.
    """

    def __init__(self, allowed: Mapping[str, Sequence[str]], *, odd: Report) -> None:
        self._allowed = allowed
        self._odd = odd
        self.texts: dict[str, str] = {}
        self.integers: dict[str, int] = {}
        self.seeds: dict[int, None] = {}
        self.hyperparameters: dict[str, float] = {}
        self.processor_share: float | None = None

    def read(self, record: Record) -> None:
        key = record.key
        value: int | str
        if key == "seed":
            self._read_seed(record)
            return
        if key == "global_batch_size":
            value = _integer(record, minimum=1)
            said: int | str = self.integers.setdefault(key, value)
        else:
            value = self._text(record)
            said = self.texts.setdefault(key, value)
        if value != said:
            raise record.fault(f"{shown(value)} after {shown(said)}", ONE_VALUE, CHANGES)

    def _read_seed(self, record: Record) -> None:
        """Keep a seed. Below 0 it is odd, but still shows two runs with one seed."""
        try:
            seed = _integer(record, minimum=0)
        except LogFormatError as error:
            self._odd(error)
            if type(record.value) is not int or not -MAX_INTEGER <= record.value < 0:
                return
            seed = record.value
        self.integers.setdefault("seed", seed)
        if len(self.seeds) < MAX_SEEDS:
            self.seeds[seed] = None

    def read_hyperparameter(self, record: Record) -> None:
        key, value = record.key, float(record.value)
        if not key.isprintable():
            self._odd(record.fault("no name of a setting", "printable characters", BAD))
        elif key not in self.hyperparameters and len(self.hyperparameters) == MAX_HYPERPARAMETERS:
            expected = f"at most {MAX_HYPERPARAMETERS}"
            self._odd(record.fault("too many settings", expected, BAD))
        elif (said := self.hyperparameters.setdefault(key, value)) != value:
            self._odd(record.fault(f"{shown(value)} after {shown(said)}", ONE_VALUE, CHANGES))

    def read_processor_share(self, record: Record) -> None:
        value = record.value
        if is_number(value) and 0.0 <= value <= 1.0:
            self.processor_share = float(value)
        else:
            self._odd(record.fault(shown(value), "a number from 0 to 1", BAD))

    def nameless(self) -> LogFormatError | None:
        """Return the error of a log that omits its benchmark."""
        if "submission_benchmark" in self.texts:
            return None
        return LogFormatError(
            "no submission_benchmark",
            field="submission_benchmark",
            expected=" or ".join(self._allowed.get("submission_benchmark", ("a text",))),
            code="no_benchmark",
        )

    def _text(self, record: Record) -> str:
        value = record.value
        if type(value) is not str or len(value) > MAX_LABEL_LENGTH or not value.isprintable():
            expected = f"a text of at most {MAX_LABEL_LENGTH} printable characters"
            raise record.fault(shown(value), expected, BAD)
        allowed = self._allowed.get(record.key)
        if allowed is not None and value not in allowed:
            what = record.key.removeprefix("submission_")
            message = f"the log is of the {what} {shown(value)}"
            raise record.fault(message, " or ".join(allowed), f"wrong_{what}")
        return value


def _integer(record: Record, *, minimum: int) -> int:
    value = record.value
    if not is_number(value) or value % 1 or not minimum <= value <= MAX_INTEGER:
        expected = f"a whole number from {minimum} to {MAX_INTEGER}"
        raise record.fault(shown(value), expected, BAD)
    return int(value)


class RunClock:
    """The times of the lines that count, from the preparation of a run to its end.

    `last` is the key of the last line that counts, and its time. `preparation_seconds` are between
    the first init_start and run_start. They are None before run_start, without an init_start, and
    where the two contradict each other. `has_evaluations` is whether the log has an eval_start at
    all.
    """

    def __init__(self) -> None:
        self.last: Record | None = None
        self.preparation_seconds: float | None = None
        self.has_evaluations = False
        self._figure: Record | None = None
        self._start_ms: float | None = None
        self._init_start_ms: float | None = None
        self._phases_in_order = True
        self._evaluated_ms = 0.0
        self._opened_ms: float | None = None
        self._measured_ms: float | None = None

    def fault(self, record: Record, *, figure: bool = False) -> str | None:
        """Say that a line's time is before the last line that counts, or the last `figure`."""
        last = self._figure if figure else self.last
        if last is None or record.time_ms >= last.time_ms:
            return None
        return f"{record.key} at {record.time_ms} ms after {last.key} at {last.time_ms} ms"

    def advance(self, record: Record) -> None:
        """Advance to the line of a figure."""
        self._figure = record
        if self.last is None or record.time_ms >= self.last.time_ms:
            self.last = record

    def phase(self, record: Record) -> str | None:
        """Advance to a line that starts or ends a phase. Returns its fault, if any."""
        fault = self.fault(record)
        if fault is None:
            self.last = record
        self._phases_in_order &= fault is None
        return fault

    def init_start(self, time_ms: float) -> None:
        """Start the preparation. Every rank logs its own, in any order, and the first counts."""
        if self._init_start_ms is None or time_ms < self._init_start_ms:
            self._init_start_ms = time_ms

    def run_start(self, record: Record) -> str | None:
        """Start the run here in any case. Returns the fault of this start, if any."""
        first = self._init_start_ms
        fault = self.fault(record)
        if first is not None and first > record.time_ms:
            fault = "run_start earlier than init_start"
        self._phases_in_order &= fault is None
        if first is not None and fault is None:
            self.preparation_seconds = (record.time_ms - first) / 1000
        self._start_ms = record.time_ms
        self.last = self._figure = record
        return fault

    def is_rounded(self, stop: Record) -> bool:
        """Whether a run stops no earlier than its last evaluation, within rounding."""
        if self._start_ms is None or self._figure is None or stop.time_ms < self._start_ms:
            return False
        return self._figure.time_ms - stop.time_ms <= ROUNDING_MS

    def start_evaluation(self, time_ms: float) -> None:
        """Start an evaluation. Ranks may repeat it. A measured one ends first."""
        self.has_evaluations = True
        if self._measured_ms is not None:
            self.stop_evaluation(self._measured_ms)
        if self._opened_ms is None:
            self._opened_ms = time_ms

    def measure(self, time_ms: float) -> None:
        """Note the quality, which ends an evaluation if eval_stop is missing."""
        if self._opened_ms is not None:
            self._measured_ms = time_ms

    def stop_evaluation(self, time_ms: float) -> None:
        if self._opened_ms is not None:
            self._evaluated_ms += time_ms - self._opened_ms
        self._opened_ms = self._measured_ms = None

    def ledger(self, end_ms: float) -> Ledger | None:
        """Return the seconds per phase up to a moment. All but preparation and evaluation is train.

        None before run_start, and where the times of the phases contradict each other.
        """
        start_ms = self._start_ms
        if start_ms is None or not self._phases_in_order:
            return None
        open_ms = 0.0 if self._opened_ms is None else end_ms - self._opened_ms
        eval_seconds = (self._evaluated_ms + open_ms) / 1000
        first = start_ms if self._init_start_ms is None else self._init_start_ms
        return Ledger(
            init=(start_ms - first) / 1000,
            train=(end_ms - start_ms) / 1000 - eval_seconds,
            eval=eval_seconds,
        )


def read_measurement(
    record: Record, *, first_epoch: int | None = None
) -> tuple[float | None, int | None, float]:
    """Return epoch, samples and quality of an eval_accuracy or eval_error line.

    One count is required. In v0.5 it isn't, and epochs count from `first_epoch`. Raises
    LogFormatError.
    """
    epoch = _count(record, "epoch_num", lowest=first_epoch or 0)
    samples = _count(record, "samples_count")
    if epoch is None and samples is None and first_epoch is None:
        raise _wrong(record, "metadata", "no epoch_num", "epoch_num or samples_count")
    if samples is not None and samples % 1:
        expected = "a whole number of samples"
        raise _wrong(record, "metadata.samples_count", repr(samples), expected)
    if not is_number(record.value):
        raise _wrong(record, "value", repr(record.value), "a finite number")
    return (
        None if epoch is None else float(epoch),
        None if samples is None else int(samples),
        float(record.value),
    )


def read_status(record: Record) -> str | None:
    """Return the status word of a run_stop line, if any. Raises LogFormatError."""
    status = record.metadata.get("status")
    if status is None or (type(status) is str and 0 < len(status) <= 40 and status.isprintable()):
        return status
    raise _wrong(record, "metadata.status", repr(status), "success or aborted")


def _count(record: Record, name: str, *, lowest: int = 0) -> Any:
    value = record.metadata.get(name)
    if value is None or (is_number(value) and lowest <= value <= MAX_COUNT):
        return value
    raise _wrong(record, f"metadata.{name}", repr(value), COUNTS)


def _wrong(record: Record, field: str, value: str, expected: str) -> LogFormatError:
    return record.fault(f"{record.key}: {value[:60]}", expected, field=field)


Moment = tuple[float | None, int | None, int | None]


@dataclass
class _Measured:
    """Qualities at one moment of the training. The last line of a metric holds."""

    line: int
    seconds: float
    qualities: dict[str, float] = field(default_factory=dict)


class SeveralMetrics:
    """The lines of a log as evaluations: one for each count of samples, or each epoch.

    `names` are the metrics as `metadata.metric` or the table of a line has them, the main one
    first. Metrics are measured one after the other, so an evaluation is as late as the last of its
    lines. With `steps` a line may tell its `step_num`, which goes before epoch and samples.
    """

    def __init__(self, names: Sequence[str], *, steps: bool = False) -> None:
        self._names = {name.lower(): name for name in names}
        self._main = names[0]
        self._steps = steps
        self._moments: dict[Moment, _Measured] = {}

    def read(self, record: Record, *, seconds: float) -> None:
        """Add the line of one metric, or of all of them, once each. Raises LogFormatError."""
        if type(record.value) is dict:
            said = {str(name).lower(): value for name, value in record.value.items()}
            if len(said) < len(record.value) or not said.keys() >= self._names.keys():
                raise self._missing(record.line, f"{record.value!r}"[:60], "eval_accuracy")
            qualities = {name: said[lowered] for lowered, name in self._names.items()}
        else:
            metric = record.metadata.get("metric")
            named = self._names.get(metric.lower()) if type(metric) is str else None
            if named is None:
                raise self._missing(record.line, f"{metric!r}"[:60], "metadata.metric")
            qualities = {named: record.value}
        measured = {
            name: self._measure(record._replace(value=value)) for name, value in qualities.items()
        }
        for name, (place, quality) in measured.items():
            moment = self._moments.setdefault(place, _Measured(record.line, seconds))
            moment.seconds = max(moment.seconds, seconds)
            moment.qualities[name] = quality

    def _measure(self, record: Record) -> tuple[Moment, float]:
        step = record.metadata.get("step_num") if self._steps else None
        if step is not None:
            record = record._replace(metadata={"samples_count": step})
            _, step, quality = read_measurement(record)
            return (None, None, step), quality
        epoch, samples, quality = read_measurement(record)
        return (epoch, samples, None), quality

    def evaluations(self, batch_size: int | None, *, report: Report) -> list[Evaluation]:
        """Return the evaluations in order of the training. Reports a missing main metric.

        Where an evaluation tells only its step, each step trained one batch.
        """
        found = []
        for moment in sorted(self._moments, key=lambda at: (at[1] or 0, at[0] or 0.0, at[2] or 0)):
            (epoch, samples, step), measured = moment, self._moments[moment]
            if step is not None and batch_size is not None:
                samples = step * batch_size
            others = dict(measured.qualities)
            quality = others.pop(self._main, None)
            if quality is None:
                report(self._missing(measured.line, f"no {self._main}", "eval_accuracy"))
                continue
            found.append(
                Evaluation(
                    epoch, measured.seconds, quality, samples, line=measured.line, others=others
                )
            )
        return found

    def _missing(self, line: int, message: str, field: str) -> LogFormatError:
        expected = f"{' and '.join(self._names.values())} of every evaluation"
        return LogFormatError(
            message, line=line, field=field, expected=expected, code="missing_metric"
        )
