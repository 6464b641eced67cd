"""Tickets: seeds that were drawn for a claim before its training."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from server.models.base import Base


class TicketRow(Base):
    """Seeds for one claim: of whom, for which benchmark, division, settings and hardware class.

    `submission_id` is the first submission that was stored with it, None while it is open.
    """

    __tablename__ = "tickets"
    __table_args__ = (Index(None, "user_id", "benchmark_id"),)

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    benchmark_id: Mapped[str] = mapped_column(String(100))
    benchmark_sha256: Mapped[str] = mapped_column(String(64))
    division: Mapped[str] = mapped_column(String(20))
    settings: Mapped[dict[str, Any]]
    hardware_class: Mapped[str] = mapped_column(String(100))
    seeds: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    submission_id: Mapped[str | None] = mapped_column(String(20))
