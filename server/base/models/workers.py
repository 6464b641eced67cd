"""Workers, their hardware classes, and the probes they report."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from server.base.models.base import Base


class WorkerRow(Base):
    """A worker that said hello, and when it last did. Its name is its user's from then on.

    `drift` is the sentence that says why it is out, since `drifted_at`: its canary is off its own
    baseline, which is of readings after `baseline_since`. `held` is "paused" where an organiser or
    a rule of the server said so: by whom, since when and why. It is `confirmed_by` an organiser, or
    by the server's own administration where that is None. `box` is a BoxWord: whose packages it
    trains, and in which environments. A worker without a broker `polls` the server.
    """

    __tablename__ = "workers"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    hardware_class: Mapped[str] = mapped_column(String(200), index=True)
    state: Mapped[str] = mapped_column(String(20))
    system: Mapped[dict[str, Any]]
    first_seen_at: Mapped[datetime]
    last_seen_at: Mapped[datetime] = mapped_column(index=True)
    drift: Mapped[str | None] = mapped_column(Text)
    drifted_at: Mapped[datetime | None]
    baseline_since: Mapped[datetime | None]
    held: Mapped[str | None] = mapped_column(String(20))
    held_at: Mapped[datetime | None]
    held_by: Mapped[str | None] = mapped_column(String(100))
    held_because: Mapped[str | None] = mapped_column(Text)
    confirmed_at: Mapped[datetime | None]
    confirmed_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    box: Mapped[dict[str, Any] | None]
    polls: Mapped[bool] = mapped_column(default=False)


class HardwareClassRow(Base):
    """A class of machines with comparable times.

    `roof` is the canary's throughput in GFLOP/s, None until it was measured; a worker of the class
    must come within a tenth of it. `origin` says where the entry came from.
    """

    __tablename__ = "hardware_classes"

    name: Mapped[str] = mapped_column(String(200), primary_key=True)
    accelerator: Mapped[str | None] = mapped_column(String(200))
    accelerator_count: Mapped[int]
    processor: Mapped[str] = mapped_column(String(200))
    processor_count: Mapped[int]
    roof: Mapped[float | None]
    origin: Mapped[str] = mapped_column(String(200))
    created_at: Mapped[datetime]


class WorkerProbeRow(Base):
    """A worker's measurements of itself at one moment; `gflops` is its canary, if it has one.

    Canaries are compared within a `configuration`; `baseline_gflops` is the baseline of this one
    and `ratio` its multiple of that. `figures` has the roofs, `host` the surroundings.
    """

    __tablename__ = "worker_probes"
    __table_args__ = (Index(None, "worker", "configuration"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    worker: Mapped[str] = mapped_column(ForeignKey("workers.name"))
    moment: Mapped[str] = mapped_column(String(20))
    measured_at: Mapped[datetime]
    attempt_id: Mapped[str | None] = mapped_column(String(20))
    gflops: Mapped[float | None]
    configuration: Mapped[str | None] = mapped_column(String(300))
    baseline_gflops: Mapped[float | None]
    ratio: Mapped[float | None]
    figures: Mapped[dict[str, Any]]
    host: Mapped[dict[str, Any]]
