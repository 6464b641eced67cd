"""Tables of the command: style, status, moment, dash, and columns left out of a narrow one."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from finishline.rules.ranking.evidence import check_of_row, evidence_words
from finishline.rules.scoring.tta import display_seconds

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
            yield Text(f"Columns left out on a narrow terminal: {named}.", style="dim")

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


ABSENT = "–"
MOST_DIGITS = 6
LARGEST_PLAIN = 1e15  # Written out, larger numbers would fill a terminal with digits.
SMALLEST_COST = 1e-6  # US dollars; of less, six places show nothing.
UNIT_SIGNS = {"percent": " %", "fraction": "", "loss": "", "score": "", "nats/byte": " nats/byte"}


def quality_text(quality: float | None, unit: str, *, target: float | None = None) -> str:
    """A quality in the unit of its benchmark: 97.50 %, 0.7500.

    Beside its target it has as many digits as it takes to be told from it: 97.496 % of 97.5 %.
    """
    if quality is None:
        return ABSENT
    digits = 2 if unit == "percent" else 4
    while target is not None and digits < MOST_DIGITS and quality != target:
        if round(quality, digits) != round(target, digits):
            break
        digits += 1
    return f"{_fixed(quality, digits)}{UNIT_SIGNS.get(unit, ' ' + unit)}"


def seconds_text(seconds: float | None) -> str:
    """Seconds with as many digits as tell something: 0.853 s, 12.40 s, 341.0 s."""
    if seconds is None:
        return ABSENT
    digits = 3 if seconds < 10 else 2 if seconds < 100 else 1
    return f"{_fixed(seconds, digits)} s"


def time_text(seconds: float | None) -> str:
    """A time as read on a stopwatch: 1.294 s below a minute, else 0:01:05, rounded up."""
    return seconds_text(seconds) if seconds is None or seconds < 60 else display_seconds(seconds)


def number_text(value: float | None, *, digits: int = 1, unit: str = "") -> str:
    """A number with a fixed count of digits, and its unit."""
    return ABSENT if value is None else f"{_fixed(value, digits)}{unit}"


def cost_text(cost_usd: float | None) -> str:
    """US dollars; small amounts keep enough digits to differ."""
    if cost_usd is None:
        return ABSENT
    if 0 < cost_usd < SMALLEST_COST:
        return f"${cost_usd:.2g}"
    return f"${_fixed(cost_usd, 2)}" if cost_usd >= 1 else f"${cost_usd:.6f}"


def _fixed(value: float, digits: int) -> str:
    """A number with so many digits after the point; one beyond all that is measured in short."""
    return f"{value:.{digits}f}" if abs(value) <= LARGEST_PLAIN else f"{value:.3g}"


def minute_text(moment: str | None) -> str:
    """A moment of the API to the minute, in UTC."""
    if moment is None:
        return ABSENT
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M}"


View = Mapping[str, Any]
STATUS_STYLES = {
    "verified": "bold green",
    "measured": "bold green",
    "contradicted": "bold red",
    "rejected": "bold red",
    "inconclusive": "yellow",
    "challenger_faster": "bold green",
    "holder_faster": "bold green",
    "not_separable": "yellow",
    "failed": "bold red",
    "pass": "green",
    "fail": "bold red",
    "open": "yellow",
}
# Columns that give way when the terminal is narrow; figures and ids never do.
WIDE = (
    "model", "system", "submitter", "processor", "compared", "reason", "reasons",
    "provider", "instance", "region", "source", "label",
    "organisation", "e-mail", "address", "target", "divisions", "starts",
)  # fmt: skip


def status_text(status: object) -> Text:
    """A status or an outcome in its colour."""
    word = str(status or ABSENT)
    return Text(word.replace("_", " "), style=STATUS_STYLES.get(word, ""))


def standing_text(view: View) -> Text:
    """The evidence of a submission or of an entry of a board, with the check of a claim."""
    check = check_of_row(view)
    style = "contradicted" if check == "contradicted" else str(view.get("evidence", "claimed"))
    return Text(evidence_words(view), style=STATUS_STYLES.get(style, ""))


def make_table(*columns: str, right: Sequence[str] = (), spare: Sequence[str] = ()) -> Table:
    """An empty table in the style of all of them; the columns of `right` are figures.

    Those of `spare` are left out where they do not fit, the first one first.
    """
    table = FittingTable(spare=spare)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            overflow="ellipsis",
            no_wrap=column not in WIDE,
        )
    return table


def or_dash(value: object) -> str:
    """A value as text, a dash where there is none."""
    return ABSENT if value is None or value == "" else str(value)


def minute(moment: str | None) -> str:
    """A moment as the server writes it (UTC), to the minute."""
    return or_dash(moment[:16].replace("T", " ") + "Z" if moment else None)
