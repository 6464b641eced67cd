"""The times of an MLPerf log: do its lines go on in time, and where did the seconds of a run go?"""

from finishline.rules.logs.mllog_evaluation import EvaluationTime
from finishline.rules.logs.mllog_record import MllogRecord
from finishline.rules.run import Ledger

# A clock that is read twice for one moment, and rounded, can tell times this far apart.
ROUNDING_MS = 10

Moment = tuple[str, float]


class RunClock:
    """The times of the lines that count, from the preparation of a run to its end.

    `last` is the key of the last line that counts, and its time. `evaluating` knows the time spent
    in evaluations. `preparation_seconds` lie between the first init_start and run_start. None
    before run_start, without an init_start, and where the two contradict each other.
    """

    def __init__(self) -> None:
        self.last: Moment | None = None
        self.evaluating = EvaluationTime()
        self.preparation_seconds: float | None = None
        self._figure: Moment | None = None
        self._start_ms: float | None = None
        self._init_start_ms: float | None = None
        self._phases_in_order = True

    def fault(self, record: MllogRecord, *, figure: bool = False) -> str | None:
        """What is wrong with the time of a line: it goes back behind the last line that counts.

        Of a `figure` only the last line that a figure rests on is asked.
        """
        last = self._figure if figure else self.last
        if last is None or record.time_ms >= last[1]:
            return None
        return f"{record.key} at {record.time_ms} ms after {last[0]} at {last[1]} ms"

    def advance(self, record: MllogRecord) -> None:
        """Advance to a line that a figure rests on."""
        self._figure = (record.key, record.time_ms)
        if self.last is None or record.time_ms >= self.last[1]:
            self.last = self._figure

    def phase(self, record: MllogRecord) -> str | None:
        """Advance to a line that starts or ends a phase. The fault if it cannot."""
        fault = self.fault(record)
        if fault is None:
            self.last = (record.key, record.time_ms)
        self._phases_in_order &= fault is None
        return fault

    def init_start(self, time_ms: float) -> None:
        """The preparation starts. Every rank logs its own, in any order, and the first counts."""
        first = self._init_start_ms
        self._init_start_ms = time_ms if first is None else min(first, time_ms)

    def run_start(self, record: MllogRecord) -> str | None:
        """Start the run here in any case. The fault if it may not start here."""
        first = self._init_start_ms
        if first is not None and first > record.time_ms:
            fault: str | None = "run_start earlier than init_start"
        else:
            fault = self.fault(record)
        self._phases_in_order &= fault is None
        if first is not None and fault is None:
            self.preparation_seconds = (record.time_ms - first) / 1000
        self._start_ms = record.time_ms
        self.last = self._figure = (record.key, record.time_ms)
        return fault

    def is_rounded(self, stop: MllogRecord) -> bool:
        """Whether a run stops no earlier than its last evaluation, within rounding."""
        if self._start_ms is None or self._figure is None or stop.time_ms < self._start_ms:
            return False
        return self._figure[1] - stop.time_ms <= ROUNDING_MS

    def ledger(self, end_ms: float) -> Ledger | None:
        """Seconds per phase up to a moment; all but preparation and evaluation is train.

        None before run_start, and where the times of the phases contradict each other.
        """
        start_ms = self._start_ms
        if start_ms is None or not self._phases_in_order:
            return None
        eval_seconds = self.evaluating.total_ms(end_ms) / 1000
        first = start_ms if self._init_start_ms is None else self._init_start_ms
        return Ledger(
            init=(start_ms - first) / 1000,
            train=(end_ms - start_ms) / 1000 - eval_seconds,
            eval=eval_seconds,
        )
