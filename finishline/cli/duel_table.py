"""The end of a duel for people: the pairs, then the verdict and what it rests on."""

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from finishline.cli.formats import ABSENT, number_text, seconds_text
from finishline.cli.submission_tables import verdict_lines

View = Mapping[str, Any]


def duel_lines(view: View) -> list[RenderableType]:
    """The table of pairs where there are any, and the verdict with every reason."""
    pairs = (view.get("duel") or {}).get("pairs") or []
    return [*([pair_table(pairs)] if pairs else []), *verdict_lines(view)]


def pair_table(pairs: list[View]) -> Table:
    """Each pair of runs: the challenger's A, the holder's B."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("pair", "A challenger", "B holder", "A/B", "faster"):
        table.add_column(column, justify="left" if column == "faster" else "right", no_wrap=True)
    for pair in pairs:
        table.add_row(
            str(pair.get("number")),
            _run_text(pair.get("challenger") or {}),
            _run_text(pair.get("holder") or {}),
            number_text(pair.get("ratio"), digits=3),
            str(pair.get("winner") or ABSENT),
        )
    return table


def _run_text(run: View) -> str:
    """A run's seconds, or how it ended without any."""
    seconds = run.get("seconds")
    return str(run.get("ending") or ABSENT) if seconds is None else seconds_text(seconds)
