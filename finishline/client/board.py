"""A leaderboard as programs and notebooks use it."""

from collections.abc import Callable, Iterator
from html import escape
from importlib import import_module
from typing import Any, Self

from pydantic import PrivateAttr

from finishline.api.boards import BoardEntry, BoardView
from finishline.rules.ranking import evidence_words, ranked_seconds
from finishline.rules.scoring.tta import display_seconds

HEADERS = ("rank", "model", "submitter", "system", "time", "evidence")


class Board(BoardView):
    """A page of a leaderboard. Iterating goes on over the pages after it, unless one was chosen."""

    _next_page: Callable[[str], "Board"] | None = PrivateAttr(default=None)

    def followed_by(self, next_page: Callable[[str], "Board"]) -> Self:
        """The same board, whose further pages are asked for by their cursors."""
        self._next_page = next_page
        return self

    def __iter__(self) -> Iterator[BoardEntry]:  # type: ignore[override]  # Not over its fields.
        page: Board = self
        while True:
            yield from page.entries
            if self._next_page is None or page.next_cursor is None:
                return
            page = self._next_page(page.next_cursor)

    def whole(self) -> "Board":
        """The board with the entries of all its pages."""
        return self.model_copy(update={"entries": list(self), "next_cursor": None})

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each entry. A table's fields are columns such as system_name.

        Raises ImportError without pandas.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise ImportError(
                "to_pandas needs pandas; install it with `pip install 'finishline-tta[pandas]'`."
            ) from error
        rows = [entry.model_dump() for entry in self]
        if not rows:
            return pandas.DataFrame(columns=list(BoardEntry.model_fields))
        return pandas.json_normalize(rows, sep="_")

    def _repr_html_(self) -> str:
        """The entries of this page as a table, in a notebook."""
        head = "".join(f"<th>{name}</th>" for name in HEADERS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(entry)) + "</tr>"
            for entry in self.entries
        )
        shown = f"{escape(self.benchmark)}: {len(self.entries)} of {self.total} entries"
        return f"<table><caption>{shown}</caption><tr>{head}</tr>{rows}</table>"


def _cells(entry: BoardEntry) -> tuple[str, ...]:
    row = entry.model_dump()
    seconds = ranked_seconds(row)
    if seconds is None:
        time = "–"
    else:
        time = f"{seconds:.3f} s" if seconds < 60 else display_seconds(seconds)
    return (
        "–" if entry.rank is None else str(entry.rank),
        entry.model,
        entry.display_name or entry.submitter,
        entry.system.name,
        time,
        evidence_words(row),
    )
