"""Configurations that were trained here: their measured runs, and the time these measure."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from server.base.models.base import Base


class Pool(Base):
    """The measured runs of one configuration, over all its submitters.

    `configuration_sha256` is the key (rules/submissions/settings). `measured_seconds` is the
    olympic mean of its `runs`, since `measured_at`, with its interval: None below three runs, and
    where more of them missed the target than are dropped. Of the pools of one key the latest that
    is not closed holds. `is_busy` tells whether other programs had the processor in the latest
    verification.
    """

    __tablename__ = "pools"
    __table_args__ = (
        Index(None, "configuration_sha256", "closed_at"),
        Index(None, "benchmark_id", "hardware_class"),
    )

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    benchmark_id: Mapped[str] = mapped_column(String(100))
    benchmark_sha256: Mapped[str] = mapped_column(ForeignKey("benchmark_definitions.sha256"))
    division: Mapped[str] = mapped_column(String(20))
    hardware_class: Mapped[str] = mapped_column(String(200))
    configuration_sha256: Mapped[str] = mapped_column(String(64))
    settings: Mapped[dict[str, Any]]
    opened_at: Mapped[datetime]
    closed_at: Mapped[datetime | None]
    measured_seconds: Mapped[float | None]
    low_seconds: Mapped[float | None]
    high_seconds: Mapped[float | None]
    runs: Mapped[int] = mapped_column(default=0)
    measured_at: Mapped[datetime | None]
    is_busy: Mapped[bool] = mapped_column(default=False)


class PoolRun(Base):
    """One measured run of a pool: run `index` of its verification, as `attempt_id` trained it.

    `seconds` is None of a run that missed the target or its time limit: it counts as infinite.
    """

    __tablename__ = "pool_runs"
    __table_args__ = (Index(None, "pool_id"),)

    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    pool_id: Mapped[str] = mapped_column(ForeignKey("pools.id"))
    attempt_id: Mapped[str | None] = mapped_column(String(20))
    seed: Mapped[int] = mapped_column(BigInteger)
    seconds: Mapped[float | None]
    epochs: Mapped[float | None]
    best_quality: Mapped[float | None]
