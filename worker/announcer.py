"""Number replay events in order across a whole attempt."""

import itertools
from collections.abc import Callable
from dataclasses import asdict

from finishline.rules.scoring.run import Ledger
from finishline.rules.verification.messages import (
    EventKind,
    Failure,
    ReplayEvaluation,
    ReplayEvent,
    RunStatus,
)

EventSink = Callable[[ReplayEvent], None]


class Announcer:
    """Makes the events of an attempt; `sequence` counts from 0 and has no gaps."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._numbers = itertools.count()

    def run_started(self, run: int) -> None:
        """A training process was started."""
        self._emit(run, "run_started")

    def phase(self, run: int, phase: str, *, seconds: float | None, ledger: Ledger) -> None:
        """Enter a phase: the run's time belongs to it from here on."""
        self._emit(run, "phase", phase=phase, seconds=seconds, ledger=ledger)

    def evaluation(self, run: int, evaluation: ReplayEvaluation) -> None:
        """The run was evaluated."""
        self._sink(
            ReplayEvent(
                sequence=next(self._numbers), run=run, kind="evaluation", **asdict(evaluation)
            )
        )

    def run_finished(
        self,
        run: int,
        status: RunStatus,
        *,
        seconds: float | None,
        ledger: Ledger,
        cpu_seconds: float | None,
        failure: Failure | None,
    ) -> None:
        """The run ended."""
        self._sink(
            ReplayEvent(
                sequence=next(self._numbers),
                run=run,
                kind="run_finished",
                status=status,
                seconds=seconds,
                ledger=asdict(ledger),
                cpu_seconds=cpu_seconds,
                failure=failure,
            )
        )

    def _emit(
        self,
        run: int,
        kind: EventKind,
        *,
        seconds: float | None = None,
        phase: str | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        event = ReplayEvent(
            sequence=next(self._numbers),
            run=run,
            kind=kind,
            seconds=seconds,
            phase=phase,
            ledger=asdict(ledger) if ledger is not None else None,
        )
        self._sink(event)
