"""Submissions, their runs, and published results."""

from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Index,
    String,
    Text,
    UniqueConstraint,
    case,
    func,
    true,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from server.base.models.base import Base
from server.base.models.people import User

if TYPE_CHECKING:
    from server.base.models.trainings import TrainingPackage
    from server.base.models.verifications import Verification


class Submission(Base):
    """A submitter's runs on one system, with the result derived from their logs.

    One of `kind` "inference" has no runs: latency and cost are as its entry states them. The others
    are of kind "train". `measured_latency_ms` is a worker's, on their hardware class.

    `precision` is the narrowest floating type that its training touches as it says,
    `precision_measured` as its latest replay found. `energy_joules` is the mean energy of a run to
    the target in the replay that its status rests on, on its own hardware class.

    `evidence` and `check_word` say which time of it ranks and how far its claim was checked
    (rules.ranking); the measured runs of its configuration are in `pool_id`.
    `configuration_sha256` is the key of what is trained for it. One with that of an earlier live
    one is `duplicate_of` it: it is not trained and has no rank.

    `trained_with` is "reference" or "own" code, or "package" for one that is measured: it has no
    runs, and the hash of its `package` is `claim_sha256`. `tuning` has the trials and seconds of
    the search that found its settings, where its submitter states them. While the reference's runs
    make its time, `model` and `framework` are the reference's. Its submitter's words are in
    `claimed_model` and `claimed_framework`.

    One that was published elsewhere has a row in `published`, and `evidence` says so too; it is
    kept with whatever rules it breaks.

    One that is `embargoed` is its owner's, their organisation's and the organisers' to see. One
    with a `withdrawn_at` stays where it is and ranks nowhere (server.base.models.visibility has
    both rules); `withdrawn_by` is a name. One with a `retirement` (`at`, `by`, `reason`) holds no
    first place: it can't be trained any more. `waivers` are the rules that organisers waived for
    it, each with `rule`, `reason`, `by` and `at`; `eligible` leaves those out.
    """

    __tablename__ = "submissions"
    __table_args__ = (
        # All that places or counts the submissions of a board, so that no row is looked at for it:
        # results are long, and a board has thousands.
        Index(
            "ix_submissions_standing",
            *("benchmark_id", "kind", "tta_seconds", "division", "status", "eligible"),
            *("withdrawn_at", "embargoed", "submitted_at", "id"),
            *("latency_ms", "measured_latency_ms", "cost_usd_per_10000", "evidence", "check_word"),
            *("pool_id", "duplicate_of", "user_id"),
        ),
        Index(None, "benchmark_id", "submitted_at"),
        Index(None, "submitted_at"),
        Index(None, "user_id", "submitted_at"),
        UniqueConstraint("user_id", "idempotency_key"),
    )

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    benchmark_id: Mapped[str] = mapped_column(String(100))
    benchmark_sha256: Mapped[str] = mapped_column(ForeignKey("benchmark_definitions.sha256"))
    division: Mapped[str] = mapped_column(String(20))
    model: Mapped[str] = mapped_column(Text)
    framework: Mapped[str] = mapped_column(Text)
    system: Mapped[dict[str, Any]]
    hyperparameters: Mapped[dict[str, Any]]
    code_url: Mapped[str | None] = mapped_column(Text)
    notes: Mapped[str | None] = mapped_column(Text)
    claim_sha256: Mapped[str] = mapped_column(String(64))
    dawnbench: Mapped[dict[str, Any] | None]
    status: Mapped[str] = mapped_column(String(20))
    eligible: Mapped[bool]
    tta_seconds: Mapped[float | None]
    cost_usd: Mapped[float | None]
    latency_ms: Mapped[float | None]
    cost_usd_per_10000: Mapped[float | None]
    measured_latency_ms: Mapped[float | None]
    result: Mapped[dict[str, Any]]
    idempotency_key: Mapped[str | None] = mapped_column(String(200))
    request_sha256: Mapped[str] = mapped_column(String(64))
    submitted_at: Mapped[datetime]
    kind: Mapped[str] = mapped_column(String(20), default="train")
    precision: Mapped[str | None] = mapped_column(String(10))
    precision_measured: Mapped[str | None] = mapped_column(String(10))
    trained_with: Mapped[str] = mapped_column(String(10), default="own")
    tuning: Mapped[dict[str, Any] | None]
    claimed_model: Mapped[str | None] = mapped_column(Text)
    claimed_framework: Mapped[str | None] = mapped_column(Text)
    energy_joules: Mapped[float | None]
    embargoed: Mapped[bool] = mapped_column(default=False)
    withdrawn_at: Mapped[datetime | None]
    withdrawn_by: Mapped[str | None] = mapped_column(String(100))
    withdrawn_because: Mapped[str | None] = mapped_column(Text)
    retirement: Mapped[dict[str, Any] | None]
    waivers: Mapped[list[Any] | None]
    evidence: Mapped[str] = mapped_column(String(12), default="claimed")
    check_word: Mapped[str | None] = mapped_column(String(16))
    pool_id: Mapped[str | None] = mapped_column(ForeignKey("pools.id"), index=True)
    configuration_sha256: Mapped[str | None] = mapped_column(String(64), index=True)
    duplicate_of: Mapped[str | None] = mapped_column(String(20), index=True)

    @property
    def published_on(self) -> date | None:
        """The day on which the result was published, None of a claim or where it is not known."""
        return self.published.published_on if self.published is not None else None

    @property
    def submitter(self) -> str:
        """The organisation that published the result, else the user who handed it in."""
        return (self.published and self.published.organisation) or self.user.name

    @property
    def trained_package(self) -> "TrainingPackage | None":
        """The package that was handed in; None of a claim, for which no statement asks for one."""
        return self.package if self.trained_with == "package" else None

    @property
    def display_name(self) -> str | None:
        """The display name of the submitter; an organisation has none."""
        is_published = self.published is not None and self.published.organisation is not None
        return None if is_published else self.user.display_name

    user: Mapped[User] = relationship(lazy="joined")
    published: Mapped["PublishedResult | None"] = relationship(lazy="joined")
    package: Mapped["TrainingPackage | None"] = relationship(
        foreign_keys="TrainingPackage.submission_id"
    )
    runs: Mapped[list["RunRow"]] = relationship(order_by="RunRow.index", lazy="selectin")
    verifications: Mapped[list["Verification"]] = relationship(
        foreign_keys="Verification.submission_id",
        order_by="Verification.created_at",
        lazy="selectin",
        back_populates="submission",
    )


# Few are embargoed at a time, and every list asks which.
Index(
    None,
    Submission.embargoed,
    sqlite_where=Submission.embargoed.is_(true()),
    postgresql_where=Submission.embargoed.is_(true()),
)


class PublishedResult(Base):
    """Facts of an imported published result that a claim does not have.

    `source` is the known archive that it comes from, with name, address and commit.
    """

    __tablename__ = "published_results"

    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    organisation: Mapped[str | None] = mapped_column(Text)
    published_on: Mapped[date | None]
    source: Mapped[dict[str, Any] | None]


# Needs both joined: the published result, which few submissions have, and the user.
SUBMITTER = func.coalesce(PublishedResult.organisation, User.name).label("submitter")
DISPLAY_NAME = case((PublishedResult.organisation.is_(None), User.display_name)).label(
    "display_name"
)


class RunRow(Base):
    """One run of a submission: its log (by hash), its curve (one JSON list), its figures.

    `convergence` is in the benchmark's unit: epochs or samples of a run that succeeded. `settings`
    are the hyperparameters that its log states, None of a run stored before they were kept.
    """

    __tablename__ = "runs"
    __table_args__ = (
        UniqueConstraint("submission_id", "index"),
        Index(None, "log_sha256"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    index: Mapped[int]
    file: Mapped[str] = mapped_column(String(200))
    seed: Mapped[int | None] = mapped_column(BigInteger)
    log_sha256: Mapped[str] = mapped_column(String(64))
    log_bytes: Mapped[int] = mapped_column(BigInteger)
    reached: Mapped[bool]
    tta_seconds: Mapped[float | None]
    epochs_to_target: Mapped[float | None]
    best_quality: Mapped[float | None]
    batch_size: Mapped[int | None] = mapped_column(BigInteger)
    convergence: Mapped[float | None]
    ledger: Mapped[dict[str, Any] | None]
    settings: Mapped[dict[str, Any] | None]
    curve: Mapped[list[Any]] = mapped_column(deferred=True)
