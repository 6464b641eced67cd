"""A table that leaves columns out, and says so, where a terminal is too narrow for all of them."""

from collections.abc import Iterable, Sequence
from copy import copy

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

GAP = 2
READABLE = 11  # Characters that tell one name from another; fewer are a column of dots.


class FittingTable(Table):
    """A table without lines. Columns that may wrap give way first, down to `readable` characters.

    Where that is not enough the columns of `spare` are left out one after the other, the first one
    first, until the others fit.
    """

    def __init__(self, *, spare: Sequence[str] = (), readable: int = READABLE) -> None:
        super().__init__(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        self.spare = tuple(spare)
        self.readable = readable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The columns that fit, then a line that names those that do not."""
        left_out: list[str] = []
        shown = list(self.columns)
        for name in self.spare:
            if self._width(shown) <= options.max_width:
                break
            shown = [column for column in shown if column.header != name]
            left_out.append(name)
        fitting = copy(self)
        fitting.columns = [_placed(column, place) for place, column in enumerate(shown)]
        yield from Table.__rich_console__(fitting, console, options)
        if left_out:
            named = ", ".join(left_out)
            yield Text(f"Left out, for the terminal is narrow: {named}.", style="dim")

    def _width(self, columns: Iterable[Column]) -> int:
        """The least width at which all of these columns say something."""
        widths = [self._width_of(column) for column in columns]
        return sum(widths) + GAP * (len(widths) - 1)

    def _width_of(self, column: Column) -> int:
        longest = max(cell_len(str(cell)) for cell in (column.header, *column._cells))
        if column.no_wrap:
            return longest
        return max(cell_len(str(column.header)), min(longest, self.readable))


def _placed(column: Column, place: int) -> Column:
    moved = copy(column)
    moved._index = place
    return moved


def one_line(text: str) -> Text:
    """A name that is cut rather than folded where its column is narrow."""
    return Text(text, no_wrap=True, overflow="ellipsis")
