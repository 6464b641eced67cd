"""The times of an MLPerf log: do its lines go on in time, and where did the seconds of a run go?"""

from finishline.rules.logs.mllog_evaluation import EvaluationTime
from finishline.rules.logs.mllog_record import MllogRecord
from finishline.rules.scoring.run import Ledger

# A clock that is read twice for one moment, and rounded, can tell times this far apart.
ROUNDING_MS = 10


class RunClock:
    """The times of the lines that count, from the preparation of a run to its end.

    `last` is the key of the last line that counts, and its time. `evaluating` knows the time spent
    in evaluations. `init_start_ms` is the time of the first init_start. `preparation_seconds` lie
    between it and run_start; None before run_start, without an init_start, and where the two
    contradict each other.
    """

    def __init__(self) -> None:
        self.last: tuple[str, float] | None = None
        self.evaluating = EvaluationTime()
        self.preparation_seconds: float | None = None
        self._start_ms: float | None = None
        self.init_start_ms: float | None = None
        self._phases_in_order = True

    def advance(self, record: MllogRecord) -> str | None:
        """Advance to a line that counts; return the fault if its time goes back."""
        if self.last is not None and record.time_ms < self.last[1]:
            last_key, last_ms = self.last
            return f"{record.key} at {record.time_ms} ms after {last_key} at {last_ms} ms"
        self.last = (record.key, record.time_ms)
        return None

    def init_start(self, time_ms: float) -> None:
        """The preparation starts: every rank logs its own, in any order; the first counts."""
        first = self.init_start_ms
        self.init_start_ms = time_ms if first is None else min(first, time_ms)

    def run_start(self, record: MllogRecord) -> str | None:
        """Start the run here in any case; return the fault if it may not start here."""
        first = self.init_start_ms
        if first is not None and first > record.time_ms:
            problem: str | None = "run_start earlier than init_start"
        else:
            problem = self.advance(record)
        self._phases_in_order &= problem is None
        if first is not None and problem is None:
            self.preparation_seconds = (record.time_ms - first) / 1000
        self._start_ms = record.time_ms
        self.last = (record.key, record.time_ms)
        return problem

    def phase(self, record: MllogRecord) -> str | None:
        """Advance to a line that starts or stops a phase; return the fault if it cannot."""
        problem = self.advance(record)
        self._phases_in_order &= problem is None
        return problem

    def is_rounded(self, stop: MllogRecord) -> bool:
        """Whether a run stops no earlier than its last evaluation, within rounding."""
        if self._start_ms is None or self.last is None or stop.time_ms < self._start_ms:
            return False
        return self.last[1] - stop.time_ms <= ROUNDING_MS

    def ledger(self, end_ms: float) -> Ledger | None:
        """Seconds per phase up to a moment; all but preparation and evaluation is train.

        None before run_start, and where the times of the phases contradict each other.
        """
        start_ms = self._start_ms
        if start_ms is None or not self._phases_in_order:
            return None
        eval_seconds = self.evaluating.total_ms(end_ms) / 1000
        first = start_ms if self.init_start_ms is None else self.init_start_ms
        return Ledger(
            init=(start_ms - first) / 1000,
            train=(end_ms - start_ms) / 1000 - eval_seconds,
            eval=eval_seconds,
        )
