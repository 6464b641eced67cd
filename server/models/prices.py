"""The price book."""

from datetime import date, datetime

from sqlalchemy import ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.models.base import Base
from server.models.people import User


class PriceRow(Base):
    """An entry of the price book; a trigger refuses to change or delete it.

    A correction is a later entry, or one that `supersedes` the wrong one.
    """

    __tablename__ = "prices"
    __table_args__ = (
        UniqueConstraint("supersedes"),
        Index(None, "provider", "instance", "region"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    provider: Mapped[str] = mapped_column(String(100))
    instance: Mapped[str] = mapped_column(String(200))
    region: Mapped[str] = mapped_column(String(100))
    pricing: Mapped[str] = mapped_column(String(20))
    usd_per_hour: Mapped[float]
    effective_on: Mapped[date]
    source_url: Mapped[str] = mapped_column(Text)
    note: Mapped[str | None] = mapped_column(Text)
    supersedes: Mapped[int | None] = mapped_column(ForeignKey("prices.id"))
    added_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    added_at: Mapped[datetime]

    adder: Mapped[User] = relationship(lazy="joined")
