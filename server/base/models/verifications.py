"""Verifications of results, with decisions on their verdicts, calibrations, and the evidence."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.base.models.base import Base
from server.base.models.people import User
from server.base.models.submissions import Submission

if TYPE_CHECKING:
    from server.base.models.attempts import Attempt


class Verification(Base):
    """One set of measured runs on a worker: plan first, verdict last, attempts in between.

    A `replay` checks its submission. A `calibration` measures the reference for its calibration
    and has no submission. A `head_to_head` holds its submission `against` another. A `latency`
    times the trained model. A `cross_check` trains a run of `checks_id` again, on another owner's
    worker. Its ordered `trainings` are sealed. A replay is judged by its `calibration_id`.

    Its sealed `runs` belong to `pool_id`. One on the quota of who requested it has
    `gpu_seconds_reserved`, its estimate until it ends.

    Its `decision` is publish or keep. The first verdict of a submission is published automatically,
    without `decided_by`. A submission's status rests on the verdict published last.

    A submission is read with all its verifications, so their long columns, and their attempts, are
    loaded only where they are asked for (`SHOWN` in server.verifications.queries).
    """

    __tablename__ = "verifications"
    __table_args__ = (
        Index(None, "state"),
        Index(None, "created_at"),
        Index(None, "requested_by", "created_at"),
    )

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    kind: Mapped[str] = mapped_column(String(20), default="replay")
    submission_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"), index=True)
    against_id: Mapped[str | None] = mapped_column(ForeignKey("submissions.id"))
    calibration_id: Mapped[str | None] = mapped_column(ForeignKey("calibrations.id"), index=True)
    benchmark_sha256: Mapped[str] = mapped_column(ForeignKey("benchmark_definitions.sha256"))
    requested_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    reason: Mapped[str | None] = mapped_column(Text)
    state: Mapped[str] = mapped_column(String(20))
    seal: Mapped[str] = mapped_column(String(64))
    nonce: Mapped[str] = mapped_column(String(64))
    runs: Mapped[int] = mapped_column(default=0)
    control_points: Mapped[list[Any]] = mapped_column(deferred=True)
    max_attempts: Mapped[int]
    lease_seconds: Mapped[float]
    limit_seconds: Mapped[float]
    outcome: Mapped[str | None] = mapped_column(String(20))
    reasons: Mapped[list[Any]] = mapped_column(deferred=True)
    report: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    pool_id: Mapped[str | None] = mapped_column(ForeignKey("pools.id"), index=True)
    checks_id: Mapped[str | None] = mapped_column(ForeignKey("verifications.id"), index=True)
    gpu_seconds_reserved: Mapped[float | None]
    decision: Mapped[Literal["publish", "keep"] | None] = mapped_column(String(10))
    decided_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    decided_at: Mapped[datetime | None]
    decision_reason: Mapped[str | None] = mapped_column(Text)

    submission: Mapped[Submission | None] = relationship(
        foreign_keys=[submission_id], back_populates="verifications"
    )
    against: Mapped[Submission | None] = relationship(foreign_keys=[against_id])
    attempts: Mapped[list["Attempt"]] = relationship(
        order_by="Attempt.number", back_populates="verification"
    )
    trainings: Mapped[list["JobTraining"]] = relationship(order_by="JobTraining.index")

    @property
    def seeds(self) -> list[int]:
        """The seed of each training, in order."""
        return [training.seed for training in self.trainings]

    @property
    def control_runs(self) -> set[int]:
        """Indices of trainings whose data are a control's: they measure no time."""
        return self._runs_for("control")

    @property
    def repeat_runs(self) -> set[int]:
        """Indices of trainings that repeat the first one: they measure no time."""
        return self._runs_for("repeat")

    def _runs_for(self, figure: str) -> set[int]:
        return {training.index for training in self.trainings if figure in training.measure}


class JobTraining(Base):
    """Training `index` of a verification: `settings` over the reference's defaults, and a seed.

    `package` names its code. See `Training` in finishline.rules.verification.messages. `opening` is
    the hash of its curve's beginning, by which copies of it are found.
    """

    __tablename__ = "job_trainings"

    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"), primary_key=True)
    index: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    package: Mapped[str] = mapped_column(String(100))
    settings: Mapped[dict[str, Any]]
    seed: Mapped[int] = mapped_column(BigInteger)
    data_nonce: Mapped[str | None] = mapped_column(String(64))
    stop_at: Mapped[str] = mapped_column(String(10))
    measure: Mapped[list[Any]]
    precision: Mapped[str | None] = mapped_column(String(10))
    opening: Mapped[str | None] = mapped_column(String(64), index=True)


class Calibration(Base):
    """A measurement of the reference: so many `runs` at each batch size, to their last epoch.

    `precision` is None for the reference's own. `version` counts per benchmark. From `adopted_at`
    on, verifications planned for this definition in this precision are judged by its runs; then
    nothing of it changes any more.
    """

    __tablename__ = "calibrations"
    __table_args__ = (UniqueConstraint("benchmark_id", "version"),)

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    benchmark_id: Mapped[str] = mapped_column(String(100))
    benchmark_sha256: Mapped[str] = mapped_column(
        ForeignKey("benchmark_definitions.sha256"), index=True
    )
    version: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))
    reason: Mapped[str | None] = mapped_column(Text)
    requested_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    batch_sizes: Mapped[list[Any]]
    runs: Mapped[int]
    precision: Mapped[str | None] = mapped_column(String(10))
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    adopted_at: Mapped[datetime | None]
    adopted_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    adopted_because: Mapped[str | None] = mapped_column(Text)

    requester: Mapped[User] = relationship(foreign_keys=[requested_by], lazy="joined")
    adopter: Mapped[User | None] = relationship(foreign_keys=[adopted_by], lazy="joined")


class CalibrationRunRow(Base):
    """One training of the reference in a calibration: its curve, and the system it was made on."""

    __tablename__ = "calibration_runs"

    calibration_id: Mapped[str] = mapped_column(ForeignKey("calibrations.id"), primary_key=True)
    batch_size: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"))
    status: Mapped[str] = mapped_column(String(20))
    quality: Mapped[list[Any]]
    seconds: Mapped[list[Any]]
    system: Mapped[dict[str, Any]]


class Evidence(Base):
    """Evidence behind a verdict, as it was when its verification ended: rescoring changes results.

    `submission` is the part of that name in a proof bundle, `code` the code that judged.
    """

    __tablename__ = "evidence"

    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"), primary_key=True)
    benchmark_sha256: Mapped[str] = mapped_column(ForeignKey("benchmark_definitions.sha256"))
    submission: Mapped[dict[str, Any]]
    code: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class SigningKey(Base):
    """A public key that proofs were signed with (hex); none is ever removed."""

    __tablename__ = "signing_keys"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    public_key: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]
