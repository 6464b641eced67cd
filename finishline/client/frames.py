"""Boards and runs for programs and notebooks: page after page, and as data frames."""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Self

from pydantic import PrivateAttr

from finishline.api.boards import COLUMN_FIELDS, BoardRow, BoardView, flat
from finishline.api.submissions import RunRecord


class Board(BoardView):
    """A page of a leaderboard. Iteration continues with the next pages, unless you chose one."""

    _next_page: Callable[[str], "Board"] | None = PrivateAttr(default=None)

    def followed_by(self, next_page: Callable[[str], "Board"]) -> Self:
        self._next_page = next_page
        return self

    def __iter__(self) -> Iterator[BoardRow]:  # type: ignore[override]  # Not over its fields.
        page: Board = self
        while True:
            yield from page.entries
            if self._next_page is None or page.next_cursor is None:
                return
            page = self._next_page(page.next_cursor)

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row for each entry, by columns such as `system_name`."""
        return _frame(COLUMN_FIELDS, (flat(row.model_dump()) for row in self))


class Runs(Iterator[RunRecord]):
    """The runs of a benchmark, page by page."""

    def __init__(self, runs: Iterator[RunRecord]) -> None:
        self._runs = runs

    def __next__(self) -> RunRecord:
        return next(self._runs)

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row for each run, by columns such as `system_name`."""
        return _frame(RunRecord.model_fields, (run.model_dump() for run in self))


def _frame(columns: Iterable[str], items: Iterable[dict[str, Any]]) -> Any:
    """Make a DataFrame. A table's fields are columns. Raises ImportError without pandas."""
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise ImportError(
            "to_pandas needs pandas; install it with `pip install 'finishline-tta[pandas]'`."
        ) from error
    rows = list(items)
    if not rows:
        return pandas.DataFrame(columns=list(columns))
    return pandas.json_normalize(rows, sep="_")
