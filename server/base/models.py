"""The tables. Curves, results and reports are JSON, read whole, and large ones `deferred`."""

import secrets
from datetime import UTC, date, datetime
from typing import Any, Literal

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    case,
    func,
    true,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC, always timezone-aware in Python."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a moment without a timezone."""
        if value is not None and value.tzinfo is None:
            raise ValueError("a moment without a timezone")
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Restore UTC: SQLite forgets the timezone, PostgreSQL answers in its session's."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Names every constraint, for migrations to name it too."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  SQLAlchemy reads this class attribute
        datetime: UtcDateTime,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
    }


class Organisation(Base):
    """A group of users, who see each other's submissions under embargo."""

    __tablename__ = "organisations"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    created_at: Mapped[datetime]


def draw_session_number() -> int:
    """Draw a number: after a restore a counted one would match an old cookie again."""
    return secrets.randbelow(2**31)


class User(Base):
    """A person who submits, organises or lends a worker.

    `role` is the highest their tokens may have (server.people.accounts). A user with a
    `disabled_at` is refused. The code of a user approved since `known_at` goes to workers without a
    memory cgroup too. Readers see the `display_name` in place of the name. `quota` has the limits
    that an organiser set, by measure: None is unlimited. `issuer` and `subject` name the user at an
    OpenID provider. Each cookie repeats the `session_number`: a new number ends all sessions.
    """

    __tablename__ = "users"
    __table_args__ = (UniqueConstraint("issuer", "subject"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)
    created_at: Mapped[datetime]
    role: Mapped[str] = mapped_column(String(20), default="submitter")
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"), index=True)
    email: Mapped[str | None] = mapped_column(String(254))
    disabled_at: Mapped[datetime | None]
    known_at: Mapped[datetime | None]
    display_name: Mapped[str | None] = mapped_column(String(100))
    quota: Mapped[dict[str, Any] | None]
    issuer: Mapped[str | None] = mapped_column(String(255))
    subject: Mapped[str | None] = mapped_column(String(255))
    session_number: Mapped[int] = mapped_column(default=draw_session_number)

    organisation: Mapped[Organisation | None] = relationship()

    def end_sessions(self) -> None:
        """Sign every browser out."""
        self.session_number = draw_session_number()


class Token(Base):
    """An API token, kept as its SHA-256. It ends with `made_with`, the token that made it."""

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    role: Mapped[str] = mapped_column(String(20))
    token_sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    label: Mapped[str | None] = mapped_column(String(100))
    last_used_at: Mapped[datetime | None]
    made_with: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))

    user: Mapped[User] = relationship(lazy="joined")

    @property
    def state(self) -> Literal["valid", "revoked", "expired"]:
        """Its state, whether or not its user is disabled."""
        if self.revoked_at is not None:
            return "revoked"
        is_over = self.expires_at is not None and self.expires_at <= datetime.now(UTC)
        return "expired" if is_over else "valid"


class Invitation(Base):
    """A link by which people join. Only the SHA-256 of its code is kept.

    It makes `uses_allowed` users of `role`, in the organisation and with an address at
    `mail_domain` if these are set. `name` is proposed to a single person. Users of a `known` link
    are approved. It ends with the token `made_with`.
    """

    __tablename__ = "invitations"

    id: Mapped[int] = mapped_column(primary_key=True)
    code_sha256: Mapped[str] = mapped_column(String(64))
    role: Mapped[str] = mapped_column(String(20))
    uses: Mapped[int] = mapped_column(default=0)
    uses_allowed: Mapped[int]
    expires_at: Mapped[datetime]
    mail_domain: Mapped[str | None] = mapped_column(String(253))
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"))
    name: Mapped[str | None] = mapped_column(String(100))
    known: Mapped[bool] = mapped_column(default=False)
    made_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    made_with: Mapped[int] = mapped_column(ForeignKey("tokens.id"))
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]

    maker: Mapped[User] = relationship(lazy="joined")
    organisation: Mapped[Organisation | None] = relationship(lazy="joined")

    @property
    def state(self) -> Literal["open", "used up", "expired", "revoked"]:
        """Its state at this moment."""
        if self.revoked_at is not None:
            return "revoked"
        if self.uses >= self.uses_allowed:
            return "used up"
        return "expired" if self.expires_at <= datetime.now(UTC) else "open"


class AuditRecord(Base):
    """A change with its user and reason. A trigger refuses to change or delete it."""

    __tablename__ = "audit_log"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    actor_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    actor: Mapped[str] = mapped_column(String(100))
    action: Mapped[str] = mapped_column(String(50))
    subject_kind: Mapped[str] = mapped_column(String(50))
    subject_id: Mapped[str] = mapped_column(String(200))
    reason: Mapped[str | None] = mapped_column(Text)
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]
    previous_sha256: Mapped[str] = mapped_column(String(64))
    sha256: Mapped[str] = mapped_column(String(64))


class BenchmarkDefinition(Base):
    """The text of a definition, now or once in force for its benchmark.

    The row with a benchmark's latest `in_force_at` is in force. `added_by` is an organiser, or None
    for the server's folder and archives. Files that an added definition pins are in the artifact
    store, by hash.
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
    """A benchmark's dates as somebody set them. The latest row holds, and rows never change."""

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
    """The version of a benchmark's leaderboard, raised by every change of it."""

    __tablename__ = "boards"

    benchmark_id: Mapped[str] = mapped_column(String(100), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger)


class BoardChange(Base):
    """The submission changed by a version of a board. Only the latest versions are kept."""

    __tablename__ = "board_changes"

    benchmark_id: Mapped[str] = mapped_column(String(100), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    submission_id: Mapped[str] = mapped_column(String(20))


class PriceRow(Base):
    """An entry of the price book. A trigger keeps it: a correction is later or `supersedes` it."""

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


class Submission(Base):
    """A submitter's runs on one system, with the result derived from their logs.

    Its `kind` is "train" or "inference". An inference has no runs: its entry states latency and
    cost. `measured_latency_ms` is a worker's, on their hardware class.

    `precision` is the narrowest floating type of the training as stated, `precision_measured` as
    the latest replay found. `energy_joules` is the mean energy of a run to the target in the replay
    behind its status, on the replay's hardware class.

    `evidence` and `check_word` say which time ranks and how far the claim was checked
    (rules.ranking). `pool_id` has the measured runs of its configuration, and
    `configuration_sha256` is the key of its training. A submission with the key of an earlier live
    one is `duplicate_of` it: it is neither trained nor ranked.

    `trained_with` is "reference", "own", or "package" for measured code: it has no runs, and the
    hash of its `package` is `claim_sha256`. `tuning` has the trials and seconds of the search for
    its settings, if stated. While the reference's runs make its time, `model` and `framework` are
    the reference's, `claimed_model` and `claimed_framework` the submitter's.

    A result published elsewhere has a row in `published`, and is kept whichever rules it breaks.

    Its owner, their organisation and organisers see an `embargoed` submission. One with a
    `withdrawn_at` ranks nowhere (server.base.visibility has both rules). `withdrawn_by` is a name.
    One with a `retirement` (`at`, `by`, `reason`) can't be trained any more and holds no first
    place. `eligible` leaves out the `waivers` (`rule`, `reason`, `by`, `at`) of organisers.
    """

    __tablename__ = "submissions"
    __table_args__ = (
        # Everything to place or count a board's submissions, so that thousands of long rows stay
        # unread.
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
        """The day of the result's publication, if known."""
        return self.published.published_on if self.published is not None else None

    @property
    def submitter(self) -> str:
        """The publishing organisation, else the user who submitted the result."""
        return (self.published and self.published.organisation) or self.user.name

    @property
    def trained_package(self) -> "TrainingPackage | None":
        """The package of a code submission. A log submission saves the statement."""
        return self.package if self.trained_with == "package" else None

    @property
    def display_name(self) -> str | None:
        """The display name of a submitter who is a user."""
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
    """More facts of an imported result. `source` is its archive: name, address and commit."""

    __tablename__ = "published_results"

    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    organisation: Mapped[str | None] = mapped_column(Text)
    published_on: Mapped[date | None]
    source: Mapped[dict[str, Any] | None]


# Join the user, and the published result, which few submissions have.
SUBMITTER = func.coalesce(PublishedResult.organisation, User.name).label("submitter")
DISPLAY_NAME = case((PublishedResult.organisation.is_(None), User.display_name)).label(
    "display_name"
)


class RunRow(Base):
    """One run of a submission: its log (by hash), its curve (one JSON list), its figures.

    `convergence` counts epochs or samples, the benchmark's unit, of a run that succeeded.
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


class TrainingPackage(Base):
    """The package of a code submission: manifest, files, and the environment that trains it.

    `files` maps names to texts. Until `published_at`, its first verdict, they are the owner's and
    the organisers'. A package is submitted once per hardware class. `environment_sha256` is its
    workers' environment, `program_sha256` its program. `determinism` is "shown" or "struck" by
    repeated runs, None if unchecked.
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


class Verification(Base):
    """One set of measured runs on a worker: plan first, verdict last, attempts in between.

    A `replay` checks its submission. A `calibration` measures the reference, without a submission.
    A `head_to_head` compares its submission with `against`, in stages: each later stage `continues`
    another. A `latency` times the trained model. A `cross_check` trains a run of `checks_id` again,
    on another owner's worker. Its ordered `trainings` are sealed. `calibration_id` judges a replay.

    Its sealed `runs` belong to `pool_id`. On a user's quota `gpu_seconds_reserved` is its estimate
    until it ends.

    Its `decision` is publish or keep. A submission's first verdict is published automatically,
    without `decided_by`. The status rests on the verdict published last.

    A submission is read with all its verifications, so their long columns and their attempts are
    loaded only on demand (`SHOWN` in server.base.standing).
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
    continues_id: Mapped[str | None] = mapped_column(ForeignKey("verifications.id"), unique=True)
    gpu_seconds_reserved: Mapped[float | None]
    decision: Mapped[Literal["publish", "keep"] | None] = mapped_column(String(10))
    decided_by: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    decided_at: Mapped[datetime | None]
    decision_reason: Mapped[str | None] = mapped_column(Text)

    submission: Mapped[Submission | None] = relationship(
        foreign_keys=[submission_id], back_populates="verifications"
    )
    against: Mapped[Submission | None] = relationship(foreign_keys=[against_id])
    continues: Mapped["Verification | None"] = relationship(
        foreign_keys=[continues_id], remote_side="Verification.id", back_populates="continued_by"
    )
    continued_by: Mapped["Verification | None"] = relationship(
        foreign_keys=[continues_id], back_populates="continues"
    )
    attempts: Mapped[list["Attempt"]] = relationship(
        order_by="Attempt.number", back_populates="verification"
    )
    trainings: Mapped[list["JobTraining"]] = relationship(order_by="JobTraining.index")

    @property
    def seeds(self) -> list[int]:
        """The seed of each training, in order."""
        return [training.seed for training in self.trainings]

    @property
    def earlier_stages(self) -> list["Verification"]:
        """The stages of a head-to-head before this one, in order."""
        before = self.continues
        return [] if before is None else [*before.earlier_stages, before]

    @property
    def control_runs(self) -> set[int]:
        """Indices of untimed trainings on a shortcut test's data."""
        return self._runs_for("control")

    @property
    def repeat_runs(self) -> set[int]:
        """Indices of untimed trainings that repeat the first one."""
        return self._runs_for("repeat")

    def _runs_for(self, figure: str) -> set[int]:
        return {training.index for training in self.trainings if figure in training.measure}


class JobTraining(Base):
    """Training `index` of a verification: `settings` over the reference's defaults, and a seed.

    `package` names its code. `opening` hashes the beginning of its curve, to find copies.
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

    `precision` is None for the reference's precision. `version` counts per benchmark. From
    `adopted_at` on, its runs judge verifications planned for this definition and precision, and it
    never changes.
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
    """A training of the reference in a calibration: its curve and its system."""

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
    """A verdict's evidence at the end of its verification: rescoring changes results."""

    __tablename__ = "evidence"

    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"), primary_key=True)
    benchmark_sha256: Mapped[str] = mapped_column(ForeignKey("benchmark_definitions.sha256"))
    submission: Mapped[dict[str, Any]]
    code: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class SigningKey(Base):
    """A public key of signed proofs (hex), kept for ever."""

    __tablename__ = "signing_keys"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    public_key: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime]


class Attempt(Base):
    """One try at a verification on one worker. `fence` counts its leases.

    `accelerators` are its worker's at the lease. `clock_slack_seconds` is how far its report could
    be from the server's clock, None before a right report. `run_started_at` is when the current run
    was announced, `last_evaluation` the latest event of a run, `log_tail` the end of a failed run's
    output, or the last output of a lost attempt.

    It waits for `hardware_class` (None for any) in the order of `server.verifications.queue`. Only
    `sent_to`, the worker drawn for it, may lease it. An attempt that `is_apart` goes to workers of
    certain owners, before all others.
    """

    __tablename__ = "attempts"
    __table_args__ = (
        UniqueConstraint("verification_id", "number"),
        Index(None, "state", "lease_expires_at"),
        Index(None, "state", "asked_at"),
        Index(None, "sent_to", "send_after"),
    )

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    verification_id: Mapped[str] = mapped_column(ForeignKey("verifications.id"))
    number: Mapped[int]
    state: Mapped[str] = mapped_column(String(20))
    fence: Mapped[int]
    token_sha256: Mapped[str | None] = mapped_column(String(64), unique=True)
    worker: Mapped[str | None] = mapped_column(String(200))
    claimed_by: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    send_after: Mapped[datetime]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    failure: Mapped[dict[str, Any] | None]
    run_started_at: Mapped[datetime | None]
    last_evaluation: Mapped[dict[str, Any] | None]
    log_tail: Mapped[str | None] = mapped_column(Text)
    accelerators: Mapped[int | None]
    clock_slack_seconds: Mapped[float | None]
    hardware_class: Mapped[str | None] = mapped_column(String(200))
    submitter_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    by_organiser: Mapped[bool]
    asked_at: Mapped[datetime]
    sent_to: Mapped[str | None] = mapped_column(String(200))
    is_apart: Mapped[bool] = mapped_column(default=False)

    verification: Mapped[Verification] = relationship(back_populates="attempts", lazy="joined")


class ReplayEventRow(Base):
    """An event posted by a worker, in order: the source of live pages and of a partial log."""

    __tablename__ = "replay_events"

    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True)
    event: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class PauseRow(Base):
    """The pause of everything by a named user, for a reason. While it exists nothing starts."""

    __tablename__ = "pauses"

    what: Mapped[str] = mapped_column(String(10), primary_key=True)
    paused_at: Mapped[datetime]
    paused_by: Mapped[str] = mapped_column(String(100))
    paused_because: Mapped[str] = mapped_column(Text)

    @property
    def sentence(self) -> str:
        """The pause in words, for users who wait."""
        return f"every queue is paused by {self.paused_by}: {self.paused_because}"


class Pool(Base):
    """The measured runs of one configuration, over all its submitters.

    `configuration_sha256` is the key (rules/submissions/settings). `measured_seconds` is the
    olympic mean of its `runs`, since `measured_at`, with its interval. It is None below three runs,
    and if more runs missed the target than the mean drops. `measured_quality` is their mean quality
    where the board ranks by it. The latest open pool of a key holds. `is_busy` tells whether other
    programs had the processor in the latest verification.
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
    measured_quality: Mapped[float | None]
    low_quality: Mapped[float | None]
    high_quality: Mapped[float | None]
    runs: Mapped[int] = mapped_column(default=0)
    measured_at: Mapped[datetime | None]
    is_busy: Mapped[bool] = mapped_column(default=False)


class PoolRun(Base):
    """One measured run of a pool: run `index` of its verification, as `attempt_id` trained it.

    `seconds` is None for a run that missed the target or its time limit, which counts as infinite.
    `quality` is the best one, or with a budget the last one within it.
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
    quality: Mapped[float | None]


class WorkerRow(Base):
    """A worker that signed on, and when it last did. From then on its name is its user's.

    `drift` says why it is out, since `drifted_at`: its speed check is off its baseline, which has
    readings after `baseline_since`. `held` is "paused", by an organiser or a rule: by whom, since
    when and why. `confirmed_by` is an organiser, or None for the server's administration. `box` is
    a BoxWord: the code and the environments it takes. A worker without a broker `polls`.
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
    """A class of machines with comparable times. `roof` is its speed check in GFLOP/s."""

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
    """A worker's measurements of itself at one moment. `gflops` is its speed check, if it has one.

    `ratio` is its multiple of `baseline_gflops`, which holds within a `configuration`.
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


class Receiver(Base):
    """A webhook or a mail address of a user, and its events.

    `channel` is webhook or mail, `scope` is own, benchmark or all. It gets events from
    `confirmed_at` to `disabled_at`. `secret` signs posts, and the links of mails. `failing_since`
    is the first failure after the last success. Mail addresses that differ only in their tag share
    a `mailbox`.
    """

    __tablename__ = "receivers"

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    channel: Mapped[str] = mapped_column(String(10))
    address: Mapped[str] = mapped_column(Text)
    mailbox: Mapped[str | None] = mapped_column(String(254), index=True)
    kinds: Mapped[list[Any]]
    scope: Mapped[str] = mapped_column(String(20))
    benchmark_id: Mapped[str | None] = mapped_column(String(100))
    secret: Mapped[str] = mapped_column(String(100))
    created_at: Mapped[datetime]
    confirmed_at: Mapped[datetime | None]
    failing_since: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    disabled_because: Mapped[str | None] = mapped_column(Text)

    @property
    def url(self) -> str:
        """The address of a webhook."""
        return self.address

    @property
    def benchmark(self) -> str | None:
        """The benchmark of its events, in the scope of one."""
        return self.benchmark_id


class Message(Base):
    """An event for one receiver: waiting, delivered or failed. The table is the outbox.

    The event's transaction writes it. A try first puts `due_at` off, so that a message is sent
    again if its process dies. `failures` counts the failures of the present series, `tries` has all
    outcomes.
    """

    __tablename__ = "outbox"
    __table_args__ = (Index(None, "state", "due_at"), Index(None, "created_at"))

    id: Mapped[int] = mapped_column(primary_key=True)
    message_id: Mapped[str] = mapped_column(String(24))
    receiver_id: Mapped[str | None] = mapped_column(ForeignKey("receivers.id"), index=True)
    kind: Mapped[str] = mapped_column(String(40))
    content: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(20))
    due_at: Mapped[datetime]
    failures: Mapped[int]
    tries: Mapped[list[Any]]
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]

    receiver: Mapped[Receiver | None] = relationship()
