"""What a chart of a board is asked for: the board's own query, and what the chart adds to it."""

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import Query
from pydantic import Field, field_validator

from server.boards.service import BoardQuery
from web.board_links import board_query

MOST_SELECTED = 12
# What a query may have and still ask for the official ranking of a division, in whatever order.
OF_A_DIVISION = {"division", "metric", "sort", "order", "limit", "cursor", "page"}
OF_A_CHART = {"against", "select"}
# A chart shows all that fits the filters, whichever page of the board was looked at.
EVERY_ENTRY: dict[str, Any] = {"limit": 1_000_000, "cursor": None, "page": 1}


class ChartQuery(BoardQuery):
    """A board's query; what times are set `against`; the ids of submissions to `select`.

    `select` may be repeated or have several ids with commas between them.
    """

    against: Literal["cost", "energy", "quality", "latency"] = "cost"
    select: list[str] = Field(default=[], max_length=MOST_SELECTED)

    @field_validator("select", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        ids = [part.strip() for text in value for part in str(text).split(",")]
        return list(dict.fromkeys(part for part in ids if part))

    def of_whole_board(self) -> "ChartQuery":
        """The same query for the board from its first entry to its last."""
        known = type(self).model_fields
        return self.model_copy(update={k: v for k, v in EVERY_ENTRY.items() if k in known})

    @property
    def narrows_further(self) -> bool:
        """Whether it asks for less or other than the official ranking of a division."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        return not given.keys() <= OF_A_DIVISION | OF_A_CHART

    def as_text(self, **changes: Any) -> str:
        """The query string of the board's filters and the chart's own, with changes."""
        given = self.model_dump(mode="json", exclude_defaults=True)
        board = board_query(given, limit=None)
        own = {name: given.get(name) for name in ("against", "select")} | changes
        chart = urlencode({k: v for k, v in own.items() if v}, doseq=True)
        return "&".join(part for part in (board, chart) if part)


ChartQueryDep = Annotated[ChartQuery, Query()]
