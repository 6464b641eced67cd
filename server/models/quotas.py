"""What may be used, and what was."""

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from server.models.base import Base


class Quota(Base):
    """What a user, an organisation's members or a benchmark may use, unlike the settings.

    `subject_kind` is user, organisation or benchmark, `measure` what is limited; an `amount` of
    None is no limit.
    """

    __tablename__ = "quotas"

    subject_kind: Mapped[str] = mapped_column(String(20), primary_key=True)
    subject: Mapped[str] = mapped_column(String(100), primary_key=True)
    measure: Mapped[str] = mapped_column(String(40), primary_key=True)
    amount: Mapped[int | None] = mapped_column(BigInteger)
    reason: Mapped[str] = mapped_column(Text)
    set_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    set_at: Mapped[datetime]


class Charge(Base):
    """A verification that a submitter asked for: its accelerators' seconds are theirs.

    What it used is that of its attempts. Until it ends `gpu_seconds_reserved` stands for it.
    """

    __tablename__ = "charges"
    __table_args__ = (Index(None, "user_id", "created_at"),)

    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    gpu_seconds_reserved: Mapped[float]
    created_at: Mapped[datetime]
