"""A board at the visitor's own price of an accelerator."""

from dataclasses import replace

from rules.cost import system_price_usd_per_hour, training_cost_usd
from server.leaderboard.rows import BoardRow, BoardRows
from server.leaderboard.schemas import BoardQuery, PriceView


def price_of(query: BoardQuery) -> float | None:
    """US dollars per accelerator-hour that a query asks for; an inference has no time to price."""
    return query.price if query.kind == "train" else None


def price_view(usd_per_accelerator_hour: float) -> PriceView:
    """What a price of one's own changes, in words too."""
    return PriceView(
        usd_per_accelerator_hour=usd_per_accelerator_hour,
        note=f"Not the official costs: at {_dollars(usd_per_accelerator_hour)} per "
        "accelerator-hour. A system that states no accelerators counts as one.",
    )


def priced_rows(rows: BoardRows, usd_per_accelerator_hour: float) -> BoardRows:
    """The rows with what their times cost at a price for each accelerator and hour."""
    return BoardRows(
        {
            submission_id: _priced(row, usd_per_accelerator_hour)
            for submission_id, row in rows.rows.items()
        }
    )


def _priced(row: BoardRow, usd_per_accelerator_hour: float) -> BoardRow:
    accelerators = row.shown["system"]["accelerator_count"] or 0
    price = system_price_usd_per_hour(usd_per_accelerator_hour, accelerators)
    return replace(row, cost_usd=training_cost_usd(row.tta_seconds, price))


def _dollars(usd: float) -> str:
    """Whole cents where that is the price, else every digit that was given."""
    return f"${usd:.2f}" if round(usd, 2) == usd else f"${usd:g}"
