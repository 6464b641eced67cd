"""The curve of a run as it is stored: one short list for each evaluation."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rules.run import Evaluation, Ledger

CurveRow = Sequence[Any]
EPOCH, SECONDS, QUALITY, SAMPLES, LEDGER, OTHERS = range(6)
PHASES = tuple(field.name for field in fields(Ledger))


def curve_row(evaluation: Evaluation) -> list[Any]:
    """Epoch, seconds, quality, samples; the phases that took seconds; the other metrics.

    The last two are where the log tells them: a row ends before what is absent behind it.
    """
    row: list[Any] = [evaluation.epoch, evaluation.seconds, evaluation.quality, evaluation.samples]
    if evaluation.ledger is not None:
        # A ledger has no slots: its own dict is read at a tenth of the cost of asdict.
        took = vars(evaluation.ledger)
        row.append({phase: took[phase] for phase in PHASES if took[phase]})
    if evaluation.others:
        row += [None] * (OTHERS - len(row)) + [dict(evaluation.others)]
    return row


def ledger_of(row: CurveRow) -> Ledger | None:
    """The ledger at an evaluation, None where the log does not tell; a row may end before it."""
    return Ledger(**row[LEDGER]) if len(row) > LEDGER and row[LEDGER] is not None else None


def evaluation_of(row: CurveRow) -> Evaluation:
    """The evaluation that a stored row was made of."""
    return Evaluation(
        epoch=row[EPOCH],
        seconds=row[SECONDS],
        quality=row[QUALITY],
        samples=row[SAMPLES],
        ledger=ledger_of(row),
        others=row[OTHERS] if len(row) > OTHERS else None,
    )
