"""What all tables of the command have: their style, a status, a moment, a dash."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from finishline.cli.fitting_table import FittingTable
from finishline.cli.formats import ABSENT
from finishline.rules.ranking.evidence import check_of_row, evidence_words

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
    "model", "system", "submitter", "processor", "what was compared", "reason", "reasons",
    "provider", "instance", "region", "source", "scopes", "label",
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
