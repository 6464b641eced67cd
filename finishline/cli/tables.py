"""Texts and tables of the command: figures, moments, statuses, and columns that fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from finishline.rules.ranking import check_of_row, evidence_words
from finishline.rules.scoring.tta import display_seconds

View = Mapping[str, Any]
ABSENT = "–"
MOST_DIGITS = 6
LARGEST_PLAIN = 1e15  # Written out, larger numbers would fill a terminal with digits.
SMALLEST_COST = 1e-6  # US dollars. Six decimals of a smaller cost are zeros.
UNIT_SIGNS = {"percent": " %", "fraction": "", "loss": "", "score": "", "nats/byte": " nats/byte"}


def or_dash(value: object) -> str:
    return ABSENT if value is None or value == "" else str(value)


def quality_text(quality: float | None, unit: str, *, target: float | None = None) -> str:
    """Format a quality: 97.50 %, 0.7500, or with the digits to differ from a target: 97.496 %."""
    if quality is None:
        return ABSENT
    digits = 2 if unit == "percent" else 4
    while target is not None and digits < MOST_DIGITS and quality != target:
        if round(quality, digits) != round(target, digits):
            break
        digits += 1
    return f"{_fixed(quality, digits)}{UNIT_SIGNS.get(unit, ' ' + unit)}"


def seconds_text(seconds: float | None) -> str:
    """Format seconds with their significant digits: 0.853 s, 12.40 s, 341.0 s."""
    if seconds is None:
        return ABSENT
    digits = 3 if seconds < 10 else 2 if seconds < 100 else 1
    return f"{_fixed(seconds, digits)} s"


def time_text(seconds: float | None) -> str:
    """Format a time for people: 1.29 s below a minute, else 0:01:05, rounded up."""
    return ABSENT if seconds is None else display_seconds(seconds)


def number_text(value: float | None, *, digits: int = 1, unit: str = "") -> str:
    return ABSENT if value is None else f"{_fixed(value, digits)}{unit}"


def cost_text(cost_usd: float | None) -> str:
    """Format US dollars. Small amounts keep enough digits to differ."""
    if cost_usd is None:
        return ABSENT
    if 0 < cost_usd < SMALLEST_COST:
        return f"${cost_usd:.2g}"
    return f"${_fixed(cost_usd, 2)}" if cost_usd >= 1 else f"${cost_usd:.6f}"


def _fixed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if abs(value) <= LARGEST_PLAIN else f"{value:.3g}"


def minute(moment: str | None) -> str:
    """Format a moment of the API to the minute, in UTC: 2026-12-01 09:00Z."""
    if not moment:
        return ABSENT
    found = datetime.fromisoformat(moment)
    in_utc = found.astimezone(UTC) if found.tzinfo else found
    return f"{in_utc:%Y-%m-%d %H:%MZ}"


STATUS_STYLES = {
    "verified": "bold green",
    "measured": "bold green",
    "contradicted": "bold red",
    "rejected": "bold red",
    "inconclusive": "yellow",
    "challenger_faster": "bold green",
    "not_proven": "yellow",
    "continues": "cyan",
    "failed": "bold red",
    "pass": "green",
    "fail": "bold red",
    "open": "yellow",
}


def status_text(status: object) -> Text:
    word = str(status or ABSENT)
    return Text(word.replace("_", " "), style=STATUS_STYLES.get(word, ""))


def standing_text(view: View) -> Text:
    """Name the evidence of a submission or row, with the check of its claim."""
    check = check_of_row(view)
    style = "contradicted" if check == "contradicted" else str(view.get("evidence", "claimed"))
    return Text(evidence_words(view), style=STATUS_STYLES.get(style, ""))


GAP = 2
READABLE = 11  # Characters of a name. Fewer are a column of dots.
# Columns that shrink on a narrow terminal. Figures and ids stay whole.
WIDE = (
    "model", "system", "submitter", "processor", "compared", "reason", "reasons",
    "provider", "instance", "region", "source", "label",
    "organisation", "e-mail", "path", "address", "target", "divisions", "starts",
)  # fmt: skip


@dataclass
class FittingTable:
    """A table that shrinks columns to READABLE, then leaves `spare` out, the first one first."""

    columns: Sequence[Column]
    spare: Sequence[str] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)

    def add_row(self, *cells: Any) -> None:
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        places, left_out = list(range(len(self.columns))), list[str]()
        for name in self.spare:
            if sum(map(self._least_width, places)) + GAP * (len(places) - 1) <= options.max_width:
                break
            places = [place for place in places if self.columns[place].header != name]
            left_out.append(name)
        shown = (self.columns[place].copy() for place in places)
        table = Table(*shown, box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        for cells in self.rows:
            table.add_row(*(cells[place] for place in places))
        yield table
        if left_out:
            named = ", ".join(left_out)
            yield Text(f"Columns left out on a narrow terminal: {named}.", style="dim")

    def _least_width(self, place: int) -> int:
        column = self.columns[place]
        longest = max((cell_len(str(row[place])) for row in self.rows), default=0)
        least = longest if column.no_wrap else min(longest, READABLE)
        return max(cell_len(str(column.header)), least)


def make_table(*columns: str, right: Sequence[str] = (), spare: Sequence[str] = ()) -> FittingTable:
    """Make an empty table in our style. `right` are figures, `spare` is left out if narrow."""
    made = [
        Column(
            name,
            justify="right" if name in right else "left",
            overflow="ellipsis",
            no_wrap=name not in WIDE,
        )
        for name in columns
    ]
    return FittingTable(made, spare)
