"""Benchmark definitions, their phases and boards; the price book."""

from datetime import date, datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.base.models.base import Base
from server.base.models.people import User


class BenchmarkDefinition(Base):
    """The text of a definition that is or was in force for its benchmark.

    Of the rows of a benchmark with an `in_force_at` the latest is in force. `added_by` is the
    organiser who added the definition; None for one of the server's folder or of an archive. Files
    that an added definition pins are in the artifact store, by their hashes.
    """

    __tablename__ = "benchmark_definitions"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    benchmark_id: Mapped[str] = mapped_column(String(100), index=True)
    version: Mapped[str] = mapped_column(String(50))
    content: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime]
    added_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    in_force_at: Mapped[datetime | None]


class BenchmarkPhases(Base):
    """The dates of a benchmark as somebody set them; the latest row holds, none is ever changed."""

    __tablename__ = "benchmark_phases"

    id: Mapped[int] = mapped_column(primary_key=True)
    benchmark_id: Mapped[str] = mapped_column(String(100), index=True)
    opens_at: Mapped[datetime | None]
    freezes_at: Mapped[datetime | None]
    closes_at: Mapped[datetime | None]
    embargo_until: Mapped[datetime | None]
    reason: Mapped[str] = mapped_column(Text)
    set_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    set_at: Mapped[datetime]

    setter: Mapped[User] = relationship(lazy="joined")


class Board(Base):
    """The version of a benchmark's leaderboard: raised by every write that can change it."""

    __tablename__ = "boards"

    benchmark_id: Mapped[str] = mapped_column(String(100), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger)


class BoardChange(Base):
    """Submission that a version of a board changed; kept for the latest versions alone."""

    __tablename__ = "board_changes"

    benchmark_id: Mapped[str] = mapped_column(String(100), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    submission_id: Mapped[str] = mapped_column(String(20))


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
    hardware_class: Mapped[str | None] = mapped_column(String(100))
    added_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    added_at: Mapped[datetime]

    adder: Mapped[User] = relationship(lazy="joined")
