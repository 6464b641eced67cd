"""The curve of a run as it is stored: one short list for each evaluation."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rules.run import Evaluation, Ledger

CurveRow = Sequence[Any]
EPOCH, SECONDS, QUALITY, SAMPLES, LEDGER = range(5)


def curve_row(evaluation: Evaluation) -> list[Any]:
    """Epoch, seconds, quality, samples and, where the log tells, the phases that took seconds."""
    row = [evaluation.epoch, evaluation.seconds, evaluation.quality, evaluation.samples]
    if evaluation.ledger is None:
        return row
    return [
        *row,
        {phase: seconds for phase, seconds in asdict(evaluation.ledger).items() if seconds},
    ]


def ledger_of(row: CurveRow) -> Ledger | None:
    """The ledger at an evaluation, None where the log does not tell; a row may end before it."""
    return Ledger(**row[LEDGER]) if len(row) > LEDGER else None
