"""Training packages that were handed in as entries."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from server.base.models.base import Base


class TrainingPackage(Base):
    """The package of a submission: its manifest, its files, and the environment that trains it.

    `files` maps names to texts. It is its owner's and the organisers' until `published_at`, the
    moment of its first verdict. A package is handed in
    once for a hardware class; `environment_sha256` is that of the workers which train it.
    `program_sha256` is that of its program. `determinism` is "shown" or "struck" by repeated runs,
    None if it was not checked.
    """

    __tablename__ = "trainings"
    __table_args__ = (UniqueConstraint("package_sha256", "hardware_class"),)

    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    package_sha256: Mapped[str] = mapped_column(String(64))
    hardware_class: Mapped[str] = mapped_column(String(200))
    program_sha256: Mapped[str] = mapped_column(String(64), index=True)
    environment: Mapped[str] = mapped_column(String(64))
    environment_sha256: Mapped[str] = mapped_column(String(64))
    manifest: Mapped[dict[str, Any]]
    files: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    compressed_bytes: Mapped[int] = mapped_column(BigInteger)
    determinism: Mapped[str | None] = mapped_column(String(10))
    published_at: Mapped[datetime | None]
