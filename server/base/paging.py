"""Lists: pages of one that is filtered beyond its index, newest first, and cells of its CSV."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Row, Select, and_, or_
from sqlalchemy.orm import Session

from server.base.errors import ContentError

# 17 digits of microseconds end in the year 5138, so every such text is a moment.
CURSOR_PATTERN = r"^[0-9]{1,17}\.[a-z0-9]{1,20}$"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
CHUNK = 500
# Most rows to read that no index can choose. A page that reads on says so.
MOST_LOOKED_AT = 5_000


@dataclass(frozen=True)
class Page:
    """Rows, newest first, and the cursor of the page after them. None at the end."""

    rows: list[Row[Any]]
    next_cursor: str | None


def cursor_of(moment: datetime, key: str) -> str:
    """Encode a position: a time in microseconds, and an id."""
    return f"{(moment - EPOCH) // MICROSECOND}.{key}"


def read_cursor(cursor: str) -> tuple[datetime, str]:
    """Decode a position to a time and an id. Raises ContentError for an invalid one."""
    if re.fullmatch(CURSOR_PATTERN, cursor, re.ASCII) is None:
        raise ContentError("Invalid cursor. Pass the next_cursor of the previous page.")
    microseconds, _, key = cursor.partition(".")
    return EPOCH + int(microseconds) * MICROSECOND, key


def read_page(
    session: Session,
    query: Select[Any],
    *,
    moment: Any,
    key: Any,
    after: tuple[datetime, str] | None,
    limit: int,
    keep: Callable[[Row[Any]], bool] | None = None,
) -> Page:
    """A page of a statement with an indexed column `moment` and an id `key`.

    `keep` chooses among its rows where a column cannot. The rows have `moment` and `key` too.
    """
    statement = query.order_by(moment.desc(), key.desc())
    found: list[Row[Any]] = []
    looked_at = 0
    while True:
        since = statement
        if after is not None:
            since = statement.where(
                or_(moment < after[0], and_(moment == after[0], key < after[1]))
            )
        wanted = CHUNK if keep is not None else limit + 1
        rows = session.execute(since.limit(wanted)).all()
        found += rows if keep is None else [row for row in rows if keep(row)]
        looked_at += len(rows)
        if len(found) > limit:
            last = found[limit - 1]
            return Page(found[:limit], cursor_of(last.moment, last.key))
        if len(rows) < wanted:
            return Page(found, None)
        after = (rows[-1].moment, rows[-1].key)
        if looked_at >= MOST_LOOKED_AT:
            return Page(found, cursor_of(*after))


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_cell(value: object) -> object:
    """A value as a cell: text that a spreadsheet would run as a formula gets an apostrophe."""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return "" if value is None else value
