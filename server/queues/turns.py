"""Whose turn it is, as the database keeps it: one row a queue, one a submitter in it."""

from collections.abc import Iterable

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from finishline.rules.verification.fair_queue import Turns
from server.database import insert_missing
from server.models import QueueRow, QueueTurn

NOBODY = 0  # Whose an attempt is that a server of the version before queued.


def lock_queues(session: Session, hardware_classes: Iterable[str]) -> None:
    """Keep every other server from choosing for these classes until this transaction ends."""
    for name in sorted(hardware_classes):
        insert_missing(session, QueueRow, hardware_class=name, turn=0, organisers_in_a_row=0)
        session.execute(
            select(QueueRow.hardware_class).where(QueueRow.hardware_class == name).with_for_update()
        )


def read_turns(session: Session, hardware_class: str) -> Turns:
    """What the queue of a hardware class remembers; nothing if it never served anybody."""
    row = session.execute(
        select(QueueRow.turn, QueueRow.organisers_in_a_row).where(
            QueueRow.hardware_class == hardware_class
        )
    ).first()
    if row is None:
        return Turns()
    last = session.execute(
        select(QueueTurn.by_organiser, QueueTurn.submitter_id, QueueTurn.turn).where(
            QueueTurn.hardware_class == hardware_class
        )
    )
    return Turns(
        {(bool(by_organiser), submitter): turn for by_organiser, submitter, turn in last},
        count=row.turn,
        organisers_in_a_row=row.organisers_in_a_row,
    )


def keep_turns(session: Session, hardware_class: str, *, before: Turns, after: Turns) -> None:
    """Store the turns that were given between two moments."""
    session.execute(
        update(QueueRow)
        .where(QueueRow.hardware_class == hardware_class)
        .values(turn=after.count, organisers_in_a_row=after.organisers_in_a_row)
    )
    for (by_organiser, submitter), turn in after.last.items():
        if before.last.get((by_organiser, submitter)) == turn or submitter == NOBODY:
            continue
        key = {
            "hardware_class": hardware_class,
            "by_organiser": by_organiser,
            "submitter_id": submitter,
        }
        insert_missing(session, QueueTurn, turn=turn, **key)
        session.execute(update(QueueTurn).filter_by(**key).values(turn=turn))
