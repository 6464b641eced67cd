"""The same figures as a chart's, as a table: for who cannot see it, and to copy from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

View = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column's heading; figures stand to the right."""

    title: str
    is_figure: bool = False


@dataclass(frozen=True)
class Row:
    """The texts of a row, the first of them a link where there is an `address`."""

    cells: tuple[str, ...]
    address: str | None = None


@dataclass(frozen=True)
class Table:
    """A chart's figures, one row for each point that is drawn and each that was left out."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def columns(*texts: str, figures: Sequence[str] = ()) -> tuple[Column, ...]:
    """Columns of text and, after them, columns of figures."""
    return (*(Column(title) for title in texts), *(Column(title, True) for title in figures))


def submission_row(entry: View, *cells: str) -> Row:
    """A row that begins with a submission, its submitter and its system."""
    first = (entry["model"], entry["submitter"], entry["system"]["name"])
    return Row((*first, *cells), f"/submissions/{entry['submission_id']}")
