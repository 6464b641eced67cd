"""Pages of lists, newest first, also of lists filtered in Python, and cells of CSV files."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from sqlalchemy import Row, Select, and_, or_
from sqlalchemy.orm import Session

from server.base.errors import ContentError

# 17 digits of microseconds end in the year 5138, so every such text is a moment.
CURSOR_PATTERN = r"^[0-9]{1,17}\.[a-z0-9]{1,20}$"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
CHUNK = 500
# The most rows to read per page if `keep` filters them.
MOST_LOOKED_AT = 5_000


@dataclass(frozen=True)
class Page:
    """Rows, newest first, and the cursor of the next page, if there is one."""

    rows: list[Row[Any]]
    next_cursor: str | None


def cursor_of(moment: date, key: str) -> str:
    """Encode a position: a time, or the midnight of a day, in microseconds, and an id."""
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time(), UTC)
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
    after: tuple[date, str] | None,
    limit: int,
    keep: Callable[[Row[Any]], bool] | None = None,
) -> Page:
    """Read a page of a statement with columns `moment` and `key`. `keep` filters in Python."""
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
    """Make a cell. Text that a spreadsheet would run as a formula gets an apostrophe."""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return "" if value is None else value
