"""Adding to the price book; nothing in it is ever changed."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.audit.service import Subject, record
from server.board_versions import raise_all_board_versions
from server.database import utc_now
from server.dependencies import Caller
from server.errors import ConflictError
from server.models import PriceRow
from server.prices.queries import find_price
from server.prices.schemas import PriceCreate


def add_price(session: Session, caller: Caller, wanted: PriceCreate) -> PriceRow:
    """Add an entry; written to the audit log.

    Raises ConflictError if the same is in the book or the superseded one has a successor already,
    NotFoundError if there is no entry to supersede.
    """
    known = _the_same(session, wanted)
    if known is not None:
        raise ConflictError(f"This price is in the book already, as number {known}.")
    row = _add(session, caller, wanted)
    raise_all_board_versions(session)
    record(
        session,
        caller,
        "price.add",
        Subject("price", str(row.id)),
        reason=wanted.note,
        before=None,
        after=_logged(row),
    )
    return row


def import_prices(
    session: Session, caller: Caller, wanted: Sequence[PriceCreate]
) -> tuple[list[PriceRow], int]:
    """Add what is not in the book yet, in one transaction; the entries added, and how many it had.

    So an import that is repeated adds nothing. Raises as `add_price` does.
    """
    added: list[PriceRow] = []
    for price in wanted:
        if _the_same(session, price) is None:
            added.append(_add(session, caller, price))
    if added:
        raise_all_board_versions(session)
        record(
            session,
            caller,
            "price.import",
            Subject("price", f"{added[0].id}-{added[-1].id}"),
            reason=None,
            before=None,
            after={"prices": {str(row.id): _logged(row) for row in added}},
        )
    return added, len(wanted) - len(added)


def _add(session: Session, caller: Caller, wanted: PriceCreate) -> PriceRow:
    if wanted.supersedes is not None:
        _require_standing(session, wanted.supersedes)
    row = PriceRow(**wanted.model_dump(), added_by=caller.user_id, added_at=utc_now())
    session.add(row)
    session.flush()
    return row


def _require_standing(session: Session, price_id: int) -> None:
    # Locked, so that of two corrections of one entry the second sees the first.
    find_price(session, price_id)
    session.execute(select(PriceRow.id).where(PriceRow.id == price_id).with_for_update())
    successor = session.scalar(select(PriceRow.id).where(PriceRow.supersedes == price_id))
    if successor is not None:
        raise ConflictError(
            f"Price {price_id} is superseded by number {successor} already; supersede that one."
        )


def _the_same(session: Session, wanted: PriceCreate) -> int | None:
    columns = (getattr(PriceRow, name) == value for name, value in wanted.model_dump().items())
    return session.scalar(select(PriceRow.id).where(*columns).limit(1))


def _logged(row: PriceRow) -> dict[str, Any]:
    return {
        "provider": row.provider,
        "instance": row.instance,
        "region": row.region,
        "pricing": row.pricing,
        "usd_per_hour": row.usd_per_hour,
        "effective_on": row.effective_on,
        "source_url": row.source_url,
        "supersedes": row.supersedes,
    }
